"""How soon /health, /metrics and /slots answer while a long prompt prefills and 16 streams decode.

Each of the three is asked over and over for the given time, every question on a new connection, while
7,500-token prompts follow one another and 16 streams decode without a pause.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import options as paths, stats, text
from harness.crowd import Call, Crowd
from harness.server import ServerProcess
from harness.targets import Target, print_verdict

ROUTES = ("/health", "/metrics", "/slots")
LIMIT_MS = 50
STREAMS = 16
STREAM_PROMPT = 32
STREAM_TOKENS = 400
PROMPT = 7500
PAUSE_S = 0.05  # between an answer and the next question, on each route


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--model", "--llama-source")
    parser.add_argument("--seconds", type=paths.positive, default=60)
    parser.add_argument("--quick", action="store_true", help="15 seconds, to try it out")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    seconds = 15 if options.quick else options.seconds
    cells = STREAMS * (STREAM_PROMPT + STREAM_TOKENS) + PROMPT + 1024
    flags = ["-m", options.model, "-c", str(-(-cells // 256) * 256), "-np", str(STREAMS + 1)]
    flags += ["--kv-unified", "--metrics", "--slots"]
    with tempfile.TemporaryDirectory(prefix="polykv-bench-") as folder:
        with ServerProcess(options.server, flags, Path(folder) / "server.log") as server:
            document = text.tokenize(server.base_url, text.document(options.llama_source))
            with Crowd(server.base_url) as crowd:
                load = Load(crowd, document)
                return {"flags": flags, **measure(crowd, load, seconds)}


class Load:
    """Streams and long prompts, each replaced by the next one when it ends."""

    def __init__(self, crowd: Crowd, document: list[int]) -> None:
        self._crowd = crowd
        self._document = document
        self._place = 0
        self.tokens = 0
        self.prompts = 0
        for _ in range(STREAMS):
            self._start_stream()

    def start_prompt(self, _previous: Call | None = None) -> None:
        self._start(PROMPT, 1, self._end_prompt)

    def _start_stream(self, previous: Call | None = None) -> None:
        if previous is not None and previous.status != 200:
            raise SystemExit(f"a stream was refused: {bytes(previous.raw[-500:])!r}")
        self._start(STREAM_PROMPT, STREAM_TOKENS, self._start_stream)

    def _end_prompt(self, call: Call) -> None:
        self.prompts += call.status == 200
        self.start_prompt()

    def _start(self, n_prompt: int, n_predict: int, on_end: Any) -> None:
        self._place += 37  # no prompt begins like another one
        body = {
            "prompt": text.cut(self._document, self._place, n_prompt),
            "n_predict": n_predict,
            "ignore_eos": True,
            "stream": True,
            "cache_prompt": False,
        }
        self._crowd.send(Call("POST", "/completion", body, self._count, on_end))

    def _count(self, _call: Call) -> None:
        self.tokens += 1


def measure(crowd: Crowd, load: Load, seconds: float) -> dict[str, Any]:
    while load.tokens < 2 * STREAMS:  # all of them decode, about
        crowd.turn(1.0)
    load.start_prompt()
    tokens = load.tokens
    latencies = ask(crowd, seconds)
    rows = [
        [route, len(values), *(1000 * figure for figure in figures_of(values))]
        for route, values in latencies.items()
    ]
    print(
        f"\n{load.tokens - tokens} tokens decoded and {load.prompts} prompts of {PROMPT} tokens"
        f" finished in {seconds:.0f} s\n"
    )
    print(stats.table(["", "answers", "p50, ms", "p99, ms", "max, ms"], rows), end="\n\n")
    targets = [
        Target(f"{route} p99, ms", 1000 * figures_of(values)[1], LIMIT_MS, at_most=True)
        for route, values in latencies.items()
    ]
    print_verdict(targets)
    return {
        "seconds": seconds,
        "tokens_decoded": load.tokens - tokens,
        "targets": [target.as_json() for target in targets],
        "latencies_s": latencies,
    }


def figures_of(values: list[float]) -> tuple[float, float, float]:
    """p50, p99 and maximum."""
    return stats.percentile(values, 0.5), stats.percentile(values, 0.99), max(values)


def ask(crowd: Crowd, seconds: float) -> dict[str, list[float]]:
    """Seconds that each answer took, by route. Raises SystemExit when a route fails."""
    latencies: dict[str, list[float]] = {route: [] for route in ROUTES}
    due = dict.fromkeys(ROUTES, time.monotonic())

    def answered(call: Call) -> None:
        if call.status != 200:
            raise SystemExit(f"{call.path} answered {call.status} {call.fault}")
        latencies[call.path].append(call.seconds)
        due[call.path] = time.monotonic() + PAUSE_S

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        now = time.monotonic()
        for route in [route for route, at in due.items() if at <= now]:
            due[route] = float("inf")
            crowd.send(Call("GET", route, on_end=answered))
        crowd.turn(PAUSE_S / 10)
    return latencies
