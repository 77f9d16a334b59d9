"""1,200 connections at once: all are answered, /health stays quick, memory stays level, the end is clean.

More completions than the server holds are wanted all the time (16 decode, 512 wait, the rest is refused
and tries again), and the other connections are kept alive and ask for status every few seconds. In the
meantime /health is asked on new connections. Then the server gets SIGTERM, and everything that is open
must end in order: a stream with its last event or an error event, any other request with an answer.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import machine, options as paths, stats
from harness.crowd import Call, Crowd
from harness.progress import Progress
from harness.server import ServerProcess
from harness.targets import Target, print_verdict

SLOTS = 16
WAITING = 512
REFUSED = 32  # completions beyond what the server holds
GENERATE = 48
STATUS_ROUTES = ("/health", "/metrics", "/slots")
STATUS_PERIOD_S = 4.0  # below the five seconds after which an idle connection is closed
RETRY_S = 3.0
PROBE_S = 0.05
SAMPLE_S = 0.5
HEALTH_LIMIT_MS = 50
GROWTH_LIMIT = 1.02
DRAIN_MS = 3000
EXIT_S = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--model")
    parser.add_argument("--connections", type=paths.positive, default=1200)
    parser.add_argument("--seconds", type=paths.positive, default=120)
    parser.add_argument("--quick", action="store_true", help="20 seconds, to try it out")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    seconds = 20 if options.quick else options.seconds
    flags = ["-m", options.model, "-c", "8192", "-np", str(SLOTS), "--kv-unified"]
    flags += ["--metrics", "--slots", "--polykv-max-waiting", str(WAITING)]
    flags += ["--polykv-drain-ms", str(DRAIN_MS)]
    flags += ["--cache-ram", "64"]  # MiB that are full soon: what grows after that is a leak
    with tempfile.TemporaryDirectory(prefix="polykv-bench-") as folder:
        with ServerProcess(options.server, flags, Path(folder) / "server.log") as server:
            allow_open_files(2 * options.connections + 100)  # the server sees to its own limit
            with Crowd(server.base_url) as crowd:
                load = Load(crowd, options.connections)
                figures = measure(server, load, seconds)
                drain = end_server(server, load)
    return {"flags": flags, "seconds": seconds, **report(load, figures, drain)}


def allow_open_files(n: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < n:
        raise SystemExit(f"{n} open files are needed, the limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))


class Load:
    """The connections. Each one that ends is followed by the next until `stopping`."""

    def __init__(self, crowd: Crowd, n_connections: int) -> None:
        self.crowd = crowd
        self.stopping = False
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.health_s: list[float] = []
        self.most_open = 0
        self._probe: Call | None = None
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        n_completions = min(n_connections, SLOTS + WAITING + REFUSED)
        for _ in range(n_completions):
            self._complete()
        for index in range(n_connections - n_completions):
            route = STATUS_ROUTES[index % len(STATUS_ROUTES)]
            crowd.send(Call("GET", route, on_end=self._status_answered, keep_alive=True))

    def turn(self) -> None:
        """Reads, writes, and starts what is due."""
        self.crowd.turn(PROBE_S / 5)
        self.most_open = max(self.most_open, self.crowd.n_open)
        while self._later and self._later[0][0] <= time.monotonic():
            heapq.heappop(self._later)[2]()

    def probe(self) -> None:
        """Asks /health on a new connection, now and again."""
        self._probe = self.crowd.send(Call("GET", "/health", on_end=self._probed))

    def _complete(self) -> None:
        number = next(self._numbers)
        body = {
            "prompt": f"{number}. Tell me about the number {number}.",
            "n_predict": GENERATE,
            "ignore_eos": True,
            "stream": True,
        }
        self.crowd.send(Call("POST", "/completion", body, on_end=self._completed))

    def _completed(self, call: Call) -> None:
        outcome = completion_outcome(call)
        self._note(outcome, call)
        self._after(RETRY_S if outcome == "refused" else 0.0, self._complete)

    def _status_answered(self, call: Call) -> None:
        self._note("status" if call.status == 200 else "fault", call)
        self._after(STATUS_PERIOD_S, lambda: self.crowd.again(call))

    def _probed(self, call: Call) -> None:
        if self.stopping:
            return
        self._note("health" if call.status == 200 else "fault", call)
        self._probe = None
        self.health_s.append(call.seconds)
        self._after(PROBE_S, self.probe)

    def _note(self, outcome: str, call: Call) -> None:
        if self.stopping:
            outcome = f"{outcome} at the end"
        self.outcomes[outcome] += 1
        if outcome.startswith("fault"):
            what = call.fault or bytes(call.raw[-200:]).decode("utf-8", "replace")
            self.faults.append(f"{call.path} after {call.seconds:.1f} s: {what}")

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        if not self.stopping:
            due = time.monotonic() + seconds
            heapq.heappush(self._later, (due, next(self._numbers), action))

    def stop(self) -> None:
        """Nothing follows what ends from now on."""
        self.stopping = True
        self._later.clear()
        if self._probe is not None:  # it has waited so long at least
            self.health_s.append(time.monotonic() - self._probe.sent_at)


def completion_outcome(call: Call) -> str:
    """finished, refused (503), stopped (an error event of a stream that ran), or fault."""
    if call.fault:
        return "fault"
    if call.status == 503:
        error = (call.json or {}).get("error", {})
        return "refused" if error.get("message") and error.get("type") else "fault"
    last = call.events[-1] if call.status == 200 and call.events else None
    if last is None:
        return "fault"
    if last.get("stop"):
        return "finished"
    return "stopped" if last.get("error", {}).get("message") else "fault"


def measure(server: ServerProcess, load: Load, seconds: float) -> dict[str, Any]:
    """Keeps the load up for the time; returns the memory in each half."""
    began = time.monotonic()
    memory: list[tuple[float, int]] = []
    with Progress(f"{load.crowd.n_open} connections", int(seconds), unit="s") as progress:
        load.probe()
        while (now := time.monotonic() - began) < seconds:
            load.turn()
            if not memory or now - memory[-1][0] >= SAMPLE_S:
                memory.append((now, machine.resident_bytes(server.process.pid)))
                progress.reach(int(now))
    halves = [[b for at, b in memory if (at >= seconds / 2) == late] for late in (False, True)]
    return {
        "memory_first_half": max(halves[0]),
        "memory_second_half": max(halves[1]),
        "memory": memory,
    }


def end_server(server: ServerProcess, load: Load) -> dict[str, Any]:
    """SIGTERM, then everything that is open ends. The exit code is None if it did not exit."""
    load.stop()
    began = time.monotonic()
    server.send_signal(signal.SIGTERM)
    while load.crowd.n_open and time.monotonic() - began < EXIT_S:
        load.turn()
    code = None
    while code is None and time.monotonic() - began < EXIT_S:
        code = server.process.poll()
        time.sleep(0.05)
    return {
        "seconds": time.monotonic() - began,
        "exit_code": code,
        "still_open": load.crowd.n_open,
    }


def report(load: Load, figures: dict[str, Any], drain: dict[str, Any]) -> dict[str, Any]:
    health_ms = [1000 * seconds for seconds in load.health_s]
    p50, p99 = stats.percentile(health_ms, 0.5), stats.percentile(health_ms, 0.99)
    growth = figures["memory_second_half"] / figures["memory_first_half"]
    rows = [[outcome, count] for outcome, count in sorted(load.outcomes.items())]
    print("\n" + stats.table(["answers", "count"], rows), end="\n\n")
    print(f"most connections open at once: {load.most_open}")
    print(f"/health: p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {max(health_ms):.1f} ms")
    print(
        f"memory: {figures['memory_first_half'] / 2**20:.0f} MiB at most in the first half,"
        f" {figures['memory_second_half'] / 2**20:.0f} MiB in the second"
    )
    print(
        f"end: {drain['seconds']:.1f} s after SIGTERM, exit code {drain['exit_code']},"
        f" {drain['still_open']} connections still open"
    )
    for fault in load.faults[:10]:
        print(f"fault: {fault}")
    print()
    targets = [
        Target("requests without a proper answer", len(load.faults), 0, at_most=True),
        Target("/health p99, ms", p99, HEALTH_LIMIT_MS, at_most=True),
        Target("memory, second half / first half", growth, GROWTH_LIMIT, at_most=True),
        Target("connections open after the end", drain["still_open"], 0, at_most=True),
        Target("exit code 0", float(drain["exit_code"] == 0), 1),
    ]
    print_verdict(targets)
    return {
        "targets": [target.as_json() for target in targets],
        "outcomes": dict(load.outcomes),
        "faults": load.faults,
        "most_open": load.most_open,
        "health_s": load.health_s,
        "drain": drain,
        **figures,
    }
