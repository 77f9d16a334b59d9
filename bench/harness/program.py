"""Programs of ours that measure from inside and print a row of JSON per line."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.server import clean_environment


def measure(server: str, name: str, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of program `name`, which lies beside the server; its progress passes through.
    Raises SystemExit when it fails.
    """
    program = Path(server).with_name(name)
    environment = {**clean_environment(), "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "")}
    command = [str(program), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        rows = [json.loads(line) for line in process.stdout]
    if process.returncode != 0:
        raise SystemExit(f"{program} ended with {process.returncode}")
    return rows
