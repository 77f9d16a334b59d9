"""A 4k-token prompt arrives while a stream decodes: how long that stream pauses, how fast the prompt is.

Both servers run with their default flags, freshly started for every run. The largest gap is the longest
time between two tokens of the decoding stream from the moment when the prompt is sent until its first
token is there. The prefill throughput is the prompt's tokens divided by the time to its first token as
the client sees it; the server's own figure is shown beside it. Runs alternate between the servers; the
figures are medians of the pairs' ratios.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import options as paths, stats, text
from harness.crowd import Call, Crowd, stream_body
from harness.server import ServerProcess
from harness.targets import Target, print_verdict

GAP, THROUGHPUT = 1 / 3, 0.95
STREAM_PROMPT = 64
TOKENS_BEFORE = 24  # of the stream, before the prompt is sent
TOKENS_AFTER = 4  # of the prompt's own answer


@dataclass(frozen=True)
class Run:
    """`prefill_tps` as the client sees it, `server_prefill_tps` as the server says."""

    largest_gap_s: float
    usual_gap_s: float
    ttft_s: float
    prefill_tps: float
    server_prefill_tps: float


Pair = tuple[Run, Run]  # ours, the peer's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--peer", "--model", "--llama-source")
    parser.add_argument("--runs", type=paths.positive, default=7, help="alternating pairs")
    parser.add_argument("--prompt", type=paths.positive, default=4096, help="arriving tokens")
    parser.add_argument("--quick", action="store_true", help="one pair, to try it out")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    if options.quick:
        options.runs = 1
    with tempfile.TemporaryDirectory(prefix="polykv-bench-") as folder:
        bench = Bench(options, Path(folder))
        pairs = [bench.measure_pair(index) for index in range(options.runs)]
    return report(bench, pairs)


class Bench:
    def __init__(self, options: argparse.Namespace, logs: Path) -> None:
        self._options = options
        self._logs = logs
        self.flags = ["-m", options.model]
        self._document: list[int] = []

    def measure_pair(self, index: int) -> Pair:
        """One run on each, ours first in every other pair; prints a line."""
        servers = [self._options.server, self._options.peer]
        order = (0, 1) if index % 2 == 0 else (1, 0)
        runs = {side: self._measure(servers[side], f"{index}-{side}") for side in order}
        ours, peer = runs[0], runs[1]
        print(
            f"pair {index + 1}: largest gap {ours.largest_gap_s:.3f} s and {peer.largest_gap_s:.3f} s,"
            f" prefill {ours.prefill_tps:.0f} and {peer.prefill_tps:.0f} t/s (ours and peer)",
            flush=True,
        )
        return ours, peer

    def _measure(self, binary: str, name: str) -> Run:
        with ServerProcess(binary, self.flags, self._logs / f"{name}.log") as server:
            if not self._document:
                self._document = text.tokenize(
                    server.base_url, text.document(self._options.llama_source)
                )
            return measure_run(server, self._document, self._options.prompt)


def measure_run(server: ServerProcess, document: list[int], n_prompt: int) -> Run:
    """Raises SystemExit when a request was refused or the stream ended too early."""
    stream = Call("POST", "/completion", stream_body(text.cut(document, 0, STREAM_PROMPT), 3000))
    prompt = text.cut(document, STREAM_PROMPT, n_prompt)
    arriving = Call("POST", "/completion", stream_body(prompt, TOKENS_AFTER))
    with Crowd(server.base_url) as crowd:
        crowd.send(stream)
        while len(stream.event_times) < TOKENS_BEFORE and not stream.ended_at:
            crowd.turn(1.0)
        crowd.send(arriving)
        while not arriving.ended_at and not stream.ended_at:
            crowd.turn(1.0)
        crowd.cut(stream)
    if not arriving.ended_at or arriving.timings.get("prompt_n") != n_prompt:
        answer = (arriving.payload or stream.payload)[-500:].decode("utf-8", "replace")
        raise SystemExit(f"{server.command[0]}: a request fell short: {answer}")
    return sum_up(stream.event_times, arriving)


def sum_up(tokens: Sequence[float], arriving: Call) -> Run:
    first = arriving.event_times[0]
    gaps = [(end - begin, begin, end) for begin, end in zip(tokens, tokens[1:], strict=False)]
    during = [gap for gap, begin, end in gaps if end > arriving.sent_at and begin < first]
    before = [gap for gap, _, end in gaps if end <= arriving.sent_at]
    ttft = first - arriving.sent_at
    return Run(
        largest_gap_s=max(during),
        usual_gap_s=stats.median(before),
        ttft_s=ttft,
        prefill_tps=arriving.timings["prompt_n"] / ttft,
        server_prefill_tps=arriving.timings["prompt_per_second"],
    )


# Row label, field of Run.
ROWS = (
    ("largest gap, s", "largest_gap_s"),
    ("usual gap, s", "usual_gap_s"),
    ("time to first token, s", "ttft_s"),
    ("prefill, tokens/s", "prefill_tps"),
    ("prefill as the server says, tokens/s", "server_prefill_tps"),
)


def ratio(pairs: Sequence[Pair], name: str) -> float:
    """The median of the pairs' ratios, ours divided by the peer's."""
    return stats.median(getattr(ours, name) / getattr(peer, name) for ours, peer in pairs)


def report(bench: Bench, pairs: Sequence[Pair]) -> dict[str, Any]:
    rows = [
        [
            label,
            *(f"{stats.median(getattr(pair[i], name) for pair in pairs):.3f}" for i in (0, 1)),
            f"{ratio(pairs, name):.3f}",
        ]
        for label, name in ROWS
    ]
    print(f"\nmedians of {len(pairs)} alternating pairs, each run on a fresh server\n")
    print(stats.table(["", "ours", "llama-server", "ours / llama-server"], rows), end="\n\n")
    targets = [
        Target("largest gap, ours / llama-server", ratio(pairs, "largest_gap_s"), GAP, True),
        Target("prefill throughput, ours / llama-server", ratio(pairs, "prefill_tps"), THROUGHPUT),
    ]
    print_verdict(targets)
    return {
        "flags": bench.flags,
        "targets": [target.as_json() for target in targets],
        "pairs": [{"ours": asdict(ours), "peer": asdict(peer)} for ours, peer in pairs],
    }
