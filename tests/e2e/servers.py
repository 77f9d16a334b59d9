"""The server processes of one test run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from harness.server import ServerProcess

LOG_LINES_ON_FAILURE = 60
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
THREADS = str(max(1, (os.cpu_count() or 1) // WORKERS))


class Servers:
    """All server processes of the test run."""

    def __init__(self, model: Path, logs: Path) -> None:
        self._model = model
        self._logs = logs
        self._shared: dict[tuple[Path, tuple[str, ...]], ServerProcess] = {}
        self._started: list[ServerProcess] = []

    def start(self, binary: Path, flags: Sequence[str]) -> ServerProcess:
        """A server of the caller's own, ready; it is stopped at the end of the run at the latest."""
        log = self._logs / f"server-{len(self._started)}.log"
        command = ["-m", str(self._model), "-t", THREADS, *flags]
        server = ServerProcess(binary, command, log)
        self._started.append(server)
        server.wait_ready()
        return server

    def shared(self, binary: Path, flags: Sequence[str]) -> ServerProcess:
        """The one server with these flags; started at first use, and again when it has died."""
        key = (binary, tuple(flags))
        server = self._shared.get(key)
        if server is None or server.process.poll() is not None:
            server = self._shared[key] = self.start(binary, flags)
        return server

    def stop_all(self) -> None:
        for server in self._started:
            server.stop()

    def logs(self) -> list[tuple[str, str]]:
        """(title, end of the log) of the servers that run or failed."""
        return [
            (" ".join(server.command[1:]), server.log_tail(LOG_LINES_ON_FAILURE))
            for server in self._started
            if server.process.poll() != 0
        ]
