"""A workload for a tiny model, and the process that runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from courier.cli import STATE_FILE
from courier.journal import Record, read

TIMEOUT_S = 120.0  # against hanging only

N_PACKAGES, N_STEPS = 4, 6
WORKLOAD = f"""
name: <img src=x onerror=alert(1)>
max_agents: 3
floor: {{target_tps_per_session: 1, settle_tokens: 8, settle_max_ms: 500}}
request: {{max_tokens: 32, temperature: 0, ignore_eos: true}}
pool: {{system: "You write about numbers, one after another, as long as you can."}}
steps: {[{"id": f"s{i}", "prompt": f"Write about $n and {i}."} for i in range(N_STEPS)]}
packages: {[{"id": f"p{i}", "vars": {"n": str(i)}} for i in range(N_PACKAGES)]}
"""
STEPS = {f"p{i}/s{j}" for i in range(N_PACKAGES) for j in range(N_STEPS)}


class Courier:
    """`courier run` in a folder; may be killed and started again."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder / "w.run"
        self._command = [sys.executable, "-m", "courier", "run", str(folder / "w.yaml")]
        self._command += ["--url", url, "--out", str(self.folder), "--patience", str(TIMEOUT_S)]
        self._output = folder / "output"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def finish(self) -> None:
        """Waits until everything is done."""
        assert self._process is not None
        assert self._process.wait(TIMEOUT_S) == 0, self.output()

    def output(self) -> str:
        return self._output.read_text()

    def announced(self) -> list[str]:
        """The steps that it said were finished, in all its lives."""
        return re.findall(r"^ *[\d.]+ s  done (\S+):", self.output(), re.MULTILINE)

    def steps(self) -> list[Record]:
        """The finished steps that its state holds."""
        try:
            return [record for record in read(self.folder / STATE_FILE) if record["kind"] == "step"]
        except FileNotFoundError:
            return []

    def wait_for_steps(self, n: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while len(self.steps()) < n:
            assert self._process is not None
            assert self._process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.005)

    def report(self) -> Any:
        return json.loads((self.folder / "report.json").read_text())
