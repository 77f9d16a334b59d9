"""llama-server's own test suite on the pinned llama-server and on ours, side by side, offline.

What the pinned llama-server passes, ours must pass, except the tests named in exclusions.txt. A test
that fails on ours only is run once more on both before it counts. Further arguments go to pytest, for
example `-k name` or `unit/test_sleep.py`: then only the chosen tests are compared.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))

import verdict
from harness.server import clean_environment, end_on_sigterm

SUITE = Path("tools/server/tests")
TIME_LIMIT_S = 900.0
PROGRESS_EVERY_S = 5.0
# Fewer on the peer means that this set-up is broken, not that less is asked of ours.
PEER_PASSES_AT_LEAST = 280
PYTEST_NO_TESTS = 5
# Below the ports that the kernel gives to clients: a server starts on the same one hundreds of times.
PORTS = range(12000, 32000)


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port


class Suite:
    """The suite on one server, in a copy of its tree of its own."""

    def __init__(self, name: str, server: Path, options: argparse.Namespace) -> None:
        self.name = name
        self._server = server.resolve()
        self._models = options.models.resolve()
        self._results = options.results.resolve()
        tree = options.results.resolve() / name
        shutil.rmtree(tree, ignore_errors=True)
        self._folder = tree / SUITE
        shutil.copytree(options.llama_source / SUITE, self._folder)
        (tree / "models").symlink_to(options.llama_source.resolve() / "models")
        self._log = Path()

    def start(self, label: str, pytest_arguments: list[str], only: Path | None = None) -> None:
        self._log = self._results / f"{self.name}-{label}.log"
        self._junit = self._results / f"{self.name}-{label}.xml"
        environment = clean_environment() | {
            # Or the tools under test see a tree that git ignores.
            "GIT_CEILING_DIRECTORIES": str(self._results),
            "LLAMA_SERVER_BIN_PATH": str(self._server),
            "PEER_SUITE_MODELS": str(self._models),
            "PORT": str(free_port()),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{HERE}:{self._folder}",
        }
        if only is not None:
            environment["PEER_SUITE_ONLY"] = str(only)
        command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "local_models"]
        command += ["-p", "no:cacheprovider", "-m", "not slow", f"--junit-xml={self._junit}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *pytest_arguments],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def running(self) -> bool:
        return self._process.poll() is None

    def progress(self) -> str:
        done = self._log.read_text(errors="replace").rpartition("%]")[0].rpartition("[")[2]
        return f"{self.name} {done.strip() or 0} %"

    def results(self) -> dict[str, str | None]:
        if self._process.returncode not in (0, 1, PYTEST_NO_TESTS):
            print(self._log.read_text(errors="replace")[-4000:])
            sys.exit(f"the suite did not end properly on {self.name}; see {self._log}")
        return verdict.read_results(self._junit)

    def stop(self) -> None:
        """Ends a run before its time; pytest stops the server that it started."""
        if self.running():
            self._process.send_signal(signal.SIGINT)
            self._process.wait()


def run(suites: list[Suite], label: str, *arguments: object) -> list[dict[str, str | None]]:
    """The results on each server, side by side."""
    for suite in suites:
        suite.start(label, *arguments)
    try:
        _wait(suites)
    finally:
        for suite in suites:
            suite.stop()
    return [suite.results() for suite in suites]


def _wait(suites: list[Suite]) -> None:
    start = time.monotonic()
    shown = start + 2.0 - PROGRESS_EVERY_S
    while any(suite.running() for suite in suites):
        time.sleep(0.1)
        now = time.monotonic()
        if now - shown >= PROGRESS_EVERY_S:
            shown = now
            print(f"{', '.join(s.progress() for s in suites)} after {now - start:.0f} s", flush=True)
        if now - start > TIME_LIMIT_S:
            sys.exit(f"the suite took more than {TIME_LIMIT_S} s")


def report(peer: set[str], found: verdict.Verdict, problems: dict[str, str | None]) -> None:
    print(verdict.table(peer, found))
    if found.missing:
        print("\nThe pinned llama-server passes these, ours does not:")
        for test in sorted(found.missing):
            print(f"  {test}\n      {problems.get(test)}")
    for line in found.idle_exclusions:
        print(f"\n{HERE / 'exclusions.txt'}: {line}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", type=Path, required=True, help="the pinned llama-server")
    parser.add_argument("--server", type=Path, required=True, help="ours")
    parser.add_argument("--llama-source", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True, help="what tiny_models.py wrote")
    parser.add_argument("--results", type=Path, required=True, help="folder for logs and JUnit files")
    options, pytest_arguments = parser.parse_known_args()
    complete = not pytest_arguments
    end_on_sigterm()

    options.results.mkdir(parents=True, exist_ok=True)
    exclusions = verdict.read_exclusions((HERE / "exclusions.txt").read_text())
    suites = [Suite("llama-server", options.peer, options), Suite("ours", options.server, options)]
    of_peer, of_ours = run(suites, "first", pytest_arguments)
    peer, ours = verdict.passes(of_peer), verdict.passes(of_ours)
    again = verdict.judge(peer, ours, exclusions, complete).missing
    if again:
        only = options.results / "again.txt"
        only.write_text("".join(f"{test}\n" for test in sorted(again)))
        print(f"once more, on both: {len(again)} tests that fail on ours only", flush=True)
        of_peer, of_ours = run(suites, "again", [], only)
        peer -= again - verdict.passes(of_peer)
        ours |= verdict.passes(of_ours)

    found = verdict.judge(peer, ours, exclusions, complete)
    report(peer, found, of_ours)
    failures = len(found.missing) + len(found.idle_exclusions)
    if complete and len(peer) < PEER_PASSES_AT_LEAST:
        failures += 1
        print(f"\nthe pinned llama-server passes {len(peer)} tests, fewer than {PEER_PASSES_AT_LEAST}")
    print(f"{len(found.passed)} passed, {failures} failed, {len(found.excluded)} skipped", flush=True)
    return 1 if failures or not found.passed else 0


if __name__ == "__main__":
    sys.exit(main())
