"""Decode speed of many streams at once: ours against llama-server and llama-batched-bench.

At each point both servers get the same flags and prompts and stay up, the idle one asleep; the
prompts are evaluated once beforehand, and every run then finds them in the slots, so that all streams
begin to decode together. The rate of a run is the number of tokens that came to all streams between
the moment when the last stream got its first token and the moment when the first stream got its last
one, divided by that time: in it every stream decodes, whatever the order in which they started. Runs
alternate between the servers, each pair in the other order than the one before; a point's figure is
the median of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import machine, options as paths, stats, text
from harness.crowd import Call, Crowd, stream_body
from harness.server import ServerProcess
from harness.targets import Target, print_verdict

STREAMS = (1, 4, 8, 16)
PROMPTS = (16, 2048)
EACH, OVERALL, SCHEMA, BATCHED = 0.98, 1.03, 1.05, 0.97
SPARE_CELLS = 256
BUSY_WHILE_IDLE = 0.02

# It cannot be finished within any run: the stream is held to it from the first token to the last.
PEOPLE = {
    "type": "array",
    "minItems": 200,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer"},
            "languages": {"type": "array", "items": {"enum": ["en", "de", "fr"]}, "maxItems": 3},
        },
        "required": ["name", "age", "languages"],
    },
}


@dataclass(frozen=True)
class Point:
    """`streams` prompts of `prompt` tokens each, the first one bound to a JSON schema if `schema`."""

    streams: int
    prompt: int
    schema: bool = False

    @property
    def name(self) -> str:
        constraint = ", one with json_schema" if self.schema else ""
        return f"{self.streams} streams, {self.prompt}-token prompts{constraint}"


@dataclass(frozen=True)
class Run:
    """`skew_s`: between the first streams' and the last stream's first token."""

    rate: float
    skew_s: float
    prompt_tokens_evaluated: int


Pair = tuple[Run, Run]  # ours, the peer's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--peer", "--model", "--llama-source")
    parser.add_argument("--runs", type=paths.positive, default=7, help="alternating pairs")
    parser.add_argument("--tokens", type=paths.positive, default=128, help="per stream and run")
    parser.add_argument("--streams", type=paths.positive, nargs="*", default=STREAMS)
    parser.add_argument("--prompts", type=paths.positive, nargs="*", default=PROMPTS)
    parser.add_argument("--threads", type=paths.positive, default=os.cpu_count())
    parser.add_argument("--quick", action="store_true", help="one pair of 32 tokens, to try it out")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    if options.quick:
        options.runs, options.tokens = 1, 32
    points = [Point(streams, prompt) for prompt in options.prompts for streams in options.streams]
    with tempfile.TemporaryDirectory(prefix="polykv-bench-") as logs:
        bench = Bench(options, Path(logs))
        plain = {point: bench.measure(point) for point in points}
        schema_point = Point(8, 16, schema=True)
        schema = bench.measure(schema_point)
        batched = bench.measure_batched(Point(8, 16))
    return report(bench, plain, (schema_point, schema), batched)


class Bench:
    """The servers with their flags, and the one way in which each point is measured."""

    def __init__(self, options: argparse.Namespace, logs: Path) -> None:
        self._options = options
        self._logs = logs
        self._count = 0
        self.idle_share = 0.0  # of a core, the most that the server used that had nothing to do
        with self._start(options.peer, ("-m", options.model, "-c", "512")) as server:
            self._document = text.tokenize(
                server.base_url, text.document(options.llama_source)
            )

    def flags(self, point: Point) -> list[str]:
        cells = point.streams * (point.prompt + self._options.tokens) + SPARE_CELLS
        cells = -(-cells // 256) * 256
        common = ["-m", self._options.model, "-t", str(self._options.threads), "-c", str(cells)]
        return [*common, "-b", "2048", "-ub", "512", "-fa", "auto", "--kv-unified"]

    def measure(self, point: Point) -> list[Pair]:
        """Alternating runs on two servers that are up together; prints a line per pair."""
        flags = [*self.flags(point), "-np", str(point.streams)]
        bodies = self._bodies(point)
        print(f"\n{point.name}", flush=True)
        with (
            self._start(self._options.server, flags) as ours,
            self._start(self._options.peer, flags) as peer,
        ):
            for server in (ours, peer):
                decode_all(server, [{**body, "n_predict": 1} for body in bodies])
            return self._alternate(
                lambda: self._watching(peer, lambda: measure_run(ours, bodies)),
                lambda: self._watching(ours, lambda: measure_run(peer, bodies)),
            )

    def measure_batched(self, point: Point) -> list[Pair]:
        """Like `measure`, with llama-batched-bench as the peer: the model without any server."""
        bodies = self._bodies(point)
        print(f"\n{point.name}, against llama-batched-bench", flush=True)
        flags = [*self.flags(point), "-np", str(point.streams)]
        with self._start(self._options.server, flags) as ours:
            decode_all(ours, [{**body, "n_predict": 1} for body in bodies])
            return self._alternate(
                lambda: measure_run(ours, bodies), lambda: self._run_batched_bench(point)
            )

    def batched_command(self, point: Point) -> list[str]:
        binary = str(Path(self._options.peer).parent / "llama-batched-bench")
        sizes = ["-npp", point.prompt, "-ntg", self._options.tokens, "-npl", point.streams]
        return [binary, *self.flags(point), *map(str, sizes), "--output-format", "jsonl"]

    def _alternate(self, ours: Callable[[], Run], peer: Callable[[], Run]) -> list[Pair]:
        pairs: list[Pair] = []
        for index in range(self._options.runs):
            if index % 2 == 0:
                first = ours()
                pairs.append((first, peer()))
            else:
                first = peer()
                pairs.append((ours(), first))
            rates = [run.rate for run in pairs[-1]]
            print(
                f"  pair {index + 1}: ours {rates[0]:8.2f} t/s, peer {rates[1]:8.2f} t/s,"
                f" ratio {rates[0] / rates[1]:.3f}",
                flush=True,
            )
        return pairs

    def _watching(self, idle: ServerProcess, measure: Callable[[], Run]) -> Run:
        """Runs `measure` and notes what CPU time the idle server took from it."""
        began, used = time.monotonic(), machine.cpu_seconds(idle.process.pid)
        result = measure()
        used = machine.cpu_seconds(idle.process.pid) - used
        self.idle_share = max(self.idle_share, used / (time.monotonic() - began))
        return result

    def _run_batched_bench(self, point: Point) -> Run:
        command = self.batched_command(point)
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return Run(rate=json.loads(lines[-1])["speed_tg"], skew_s=0, prompt_tokens_evaluated=0)

    def _start(self, binary: str, flags: Sequence[str]) -> ServerProcess:
        self._count += 1
        return ServerProcess(binary, flags, self._logs / f"{self._count}.log")

    def _bodies(self, point: Point) -> list[dict[str, Any]]:
        """Every stream has a prompt of its own, from another place of the document."""
        bodies = [
            stream_body(
                text.cut(self._document, index * point.prompt, point.prompt), self._options.tokens
            )
            for index in range(point.streams)
        ]
        if point.schema:
            bodies[0]["json_schema"] = PEOPLE
        return bodies


def decode_all(server: ServerProcess, bodies: Sequence[dict[str, Any]]) -> list[Call]:
    """Streams all completions at once. Raises SystemExit when one fell short."""
    with Crowd(server.base_url) as crowd:
        calls = [crowd.send(Call("POST", "/completion", body)) for body in bodies]
        crowd.finish()
    for call, body in zip(calls, bodies, strict=True):
        if call.status != 200 or call.timings.get("predicted_n") != body["n_predict"]:
            answer = call.fault or call.payload[-500:].decode("utf-8", "replace")
            raise SystemExit(f"{server.command[0]}: a stream fell short: {answer}")
    return calls


def measure_run(server: ServerProcess, bodies: Sequence[dict[str, Any]]) -> Run:
    calls = decode_all(server, bodies)
    tokens = [call.event_times[:-1] for call in calls]  # the last event carries no token
    began = max(times[0] for times in tokens)
    ended = min(times[-1] for times in tokens)
    n_tokens = sum(began < at <= ended for times in tokens for at in times)
    if ended <= began:
        raise SystemExit("a stream ended before another began: more --tokens are needed")
    return Run(
        rate=n_tokens / (ended - began),
        skew_s=began - min(times[0] for times in tokens),
        prompt_tokens_evaluated=sum(call.timings["prompt_n"] for call in calls),
    )


def ratio(pairs: Sequence[Pair]) -> float:
    """The median of the pairs' ratios; above 1 ours is faster."""
    return stats.median(ours.rate / peer.rate for ours, peer in pairs)


def targets_of(
    plain: dict[Point, list[Pair]], schema: list[Pair], batched: list[Pair]
) -> list[Target]:
    targets = [Target(point.name, ratio(pairs), EACH) for point, pairs in plain.items()]
    if targets:
        mean = stats.geometric_mean(target.measured for target in targets)
        targets.append(Target("geometric mean of these", mean, OVERALL))
    targets.append(Target("one json_schema stream among eight", ratio(schema), SCHEMA))
    targets.append(Target("8 streams against llama-batched-bench", ratio(batched), BATCHED))
    return targets


def report(
    bench: Bench,
    plain: dict[Point, list[Pair]],
    schema: tuple[Point, list[Pair]],
    batched: list[Pair],
) -> dict[str, Any]:
    """Prints the tables and returns the result document."""
    measured = [*plain.items(), schema]
    rows = [
        [point.name, *(stats.median(pair[i].rate for pair in pairs) for i in (0, 1)), ratio(pairs)]
        for point, pairs in measured
    ]
    rows.append(
        [
            "8 streams, llama-batched-bench",
            *(stats.median(pair[i].rate for pair in batched) for i in (0, 1)),
            ratio(batched),
        ]
    )
    print(f"\nmedians of {len(batched)} alternating pairs, all streams together\n")
    print(stats.table(["", "ours, t/s", "peer, t/s", "ratio"], rows), end="\n\n")
    targets = targets_of(plain, schema[1], batched)
    print_verdict(targets)
    if bench.idle_share > BUSY_WHILE_IDLE:
        print(f"warning: a server with nothing to do used {bench.idle_share:.0%} of a core")
    return {
        "flags": {point.name: bench.flags(point) for point, _ in measured},
        "batched_bench": bench.batched_command(Point(8, 16)),
        "targets": [target.as_json() for target in targets],
        "idle_server_share_of_a_core": bench.idle_share,
        "points": [{**asdict(point), "pairs": pairs_json(pairs)} for point, pairs in measured],
        "batched_bench_pairs": pairs_json(batched),
    }


def pairs_json(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    return [{"ours": asdict(ours), "peer": asdict(peer)} for ours, peer in pairs]
