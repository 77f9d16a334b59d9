"""Starts and stops a llama-server or polykv-server process for benchmarks and tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness import client


def free_port() -> int:
    """A TCP port on the loopback address that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def clean_environment() -> dict[str, str]:
    """The environment without the variables by which llama.cpp's flags can be set."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("LLAMA_ARG_") and name != "LLAMA_API_KEY"
    }


def end_on_sigterm() -> None:
    """Makes SIGTERM leave the program as an exception, so that started servers are stopped too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


class ServerError(RuntimeError):
    """The server did not start, or died; the message ends with the tail of its log."""


class ServerProcess:
    """One server process in a process group of its own, with its output in `log_path`.

    Constructing starts it; `wait_ready()` blocks until `/health` answers 200. As a context manager
    it does both, and stops the process at the end.
    """

    def __init__(self, binary: str | Path, flags: Sequence[str], log_path: str | Path) -> None:
        self.port = free_port()
        prefix = flags[flags.index("--api-prefix") + 1] if "--api-prefix" in flags else ""
        self.base_url = f"http://127.0.0.1:{self.port}{prefix}"
        self.log_path = Path(log_path)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.command = [str(binary), *flags, "--host", "127.0.0.1", "--port", str(self.port)]
        self.process = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("wb") as log:
            return subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
                start_new_session=True,
            )

    def __enter__(self) -> ServerProcess:
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_ready(self, timeout_s: float = 120.0) -> None:
        """Blocks until the server is ready. Raises ServerError if it exits or takes too long."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerError(f"exit code {self.process.returncode} at start\n{self.log_tail()}")
            try:
                if client.request(self.base_url, "GET", "/health", timeout_s=5).status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise ServerError(f"not ready after {timeout_s} s\n{self.log_tail()}")

    def stop(self, grace_s: float = 10.0) -> int:
        """Ends the process group (SIGTERM, then SIGKILL) and returns the exit code."""
        self.send_signal(signal.SIGTERM)
        try:
            self.process.wait(grace_s)
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self.process.wait()
        return self.process.returncode

    def restart(self) -> None:
        """Starts the server, which has been stopped, again on its port, with a new log."""
        self.process = self._spawn()
        self.wait_ready()

    def send_signal(self, number: signal.Signals) -> None:
        """Signals the whole group; nothing happens when the process has ended."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)

    def log_tail(self, lines: int = 40) -> str:
        text = self.log_path.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])
