"""Where and on what a result was measured, and whether the machine was quiet. Linux only."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

MAX_QUIET_LOAD = 0.5
MIN_BUSY_SHARE = 0.1


def describe() -> dict[str, Any]:
    """CPU model, cores, memory and kernel."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
    }


def commit(directory: str | Path) -> str:
    """The git commit of `directory`, with "+changes" when files differ; "unknown" outside git."""
    try:
        head = _git(directory, "rev-parse", "HEAD")
        return head + ("+changes" if _git(directory, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load_warnings() -> list[str]:
    """One line for each sign that other work shares the machine; empty when it is quiet."""
    warnings = []
    load = os.getloadavg()[0]
    if load > MAX_QUIET_LOAD:
        warnings.append(f"load average is {load:.2f} (quiet is at most {MAX_QUIET_LOAD})")
    for name, share in busy_processes():
        warnings.append(f"process {name} uses {share:.0%} of a core")
    return warnings


def busy_processes(interval_s: float = 0.5) -> list[tuple[str, float]]:
    """(name, share of one core) of the other processes that use the CPU now, busiest first."""
    before = _cpu_seconds()
    time.sleep(interval_s)
    after = _cpu_seconds()
    shares = [
        (name, (seconds - before[pid][1]) / interval_s)
        for pid, (name, seconds) in after.items()
        if pid in before and pid != os.getpid()
    ]
    return sorted((s for s in shares if s[1] >= MIN_BUSY_SHARE), key=lambda s: -s[1])


def cpu_seconds(pid: int) -> float:
    """CPU time that the process has used so far. Raises OSError when it has ended."""
    return _cpu_time(Path(f"/proc/{pid}"))[1]


def resident_bytes(pid: int) -> int:
    """Memory that the process holds now. Raises OSError when it has ended."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cpu_seconds() -> dict[int, tuple[str, float]]:
    result = {}
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            result[int(directory.name)] = _cpu_time(directory)
        except OSError:
            continue  # it has ended
    return result


def _cpu_time(directory: Path) -> tuple[str, float]:
    """Name and CPU seconds of the process with this folder in /proc."""
    text = (directory / "stat").read_text(encoding="utf-8", errors="replace")
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    return name, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _field(path: str, name: str) -> str | None:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None


def _git(directory: str | Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
