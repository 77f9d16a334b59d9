"""N agents share a prefix of P tokens: PolyKV with a pool against llama-server without one.

Every agent sends the shared prefix, some tokens of its own, and wants a fixed number of tokens.
All start at once on a server that was just started. Wall time runs from the first thing sent
(the creation of the pool, or the peer's warm-up request) to the last token of the last agent.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import client, options as paths, stats, text
from harness.client import Completion
from harness.server import ServerProcess

CONTEXT_PADDING = 256


@dataclass(frozen=True)
class Workload:
    """The prompts, as tokens: every agent's own suffix follows the shared prefix."""

    prefix: list[int]
    suffixes: list[list[int]]
    generate: int

    @property
    def cells_per_agent(self) -> int:
        """Context of one agent without sharing, padded as llama.cpp pads it."""
        needed = len(self.prefix) + len(self.suffixes[0]) + self.generate + 1
        return -(-needed // CONTEXT_PADDING) * CONTEXT_PADDING

    def body(self, agent: int) -> dict[str, Any]:
        return {
            "prompt": self.prefix + self.suffixes[agent],
            "n_predict": self.generate,
            "ignore_eos": True,
            "temperature": 0,
        }


# Prepares a fresh server for the workload and returns what every request carries in addition.
Prepare = Callable[[str, Workload], dict[str, Any]]


@dataclass(frozen=True)
class Contender:
    """A server with the flags it is run with. `flags` follow the ones that all share."""

    name: str
    binary: str
    flags: tuple[str, ...]
    prepare: Prepare
    pooled: bool = False
    concurrent: bool = True


@dataclass(frozen=True)
class Figures:
    """One run. `ttft_s` is the mean over the agents from sending the request, as each agent sees
    it; `ttft_from_start_s` from the start of the run, so that preparation counts."""

    wall_s: float
    prepare_s: float
    ttft_s: float
    ttft_from_start_s: float
    decode_tps: float
    prompt_tokens: int
    cached_tokens: list[int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    paths.add_paths(parser, "--server", "--peer", "--model", "--llama-source")
    parser.add_argument("--agents", type=paths.positive, default=8)
    parser.add_argument("--prefix", type=paths.positive, default=2048, help="shared tokens")
    parser.add_argument("--suffix", type=paths.positive, default=64, help="own tokens per agent")
    parser.add_argument("--generate", type=paths.positive, default=64, help="tokens per agent")
    parser.add_argument("--runs", type=paths.positive, default=5, help="alternating pairs")
    parser.add_argument("--threads", type=paths.positive, default=os.cpu_count())


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    with tempfile.TemporaryDirectory(prefix="polykv-bench-") as logs:
        bench = Bench(options, Path(logs))
        layouts = {peer.name: bench.measure(peer) for peer in bench.peers}
        candidates = [peer for peer in bench.peers if peer.concurrent]
        best = min(candidates, key=lambda peer: layouts[peer.name].wall_s)
        print(f"\nfastest peer layout with concurrent agents: {best.name}\n")
        pairs = [(bench.measure(bench.ours), bench.measure(best)) for _ in range(options.runs)]
    return report(bench, best, layouts, pairs)


class Bench:
    """The contenders, and the one way in which each of them is measured."""

    def __init__(self, options: argparse.Namespace, logs: Path) -> None:
        self._logs = logs
        self._count = 0
        self._common = ("-m", options.model, "-t", str(options.threads))
        self.workload = self._make_workload(options)
        cells = self.workload.cells_per_agent * options.agents
        split = ("-c", str(cells), "-np", str(options.agents))
        unified = (*split, "--kv-unified")
        one = ("-c", str(self.workload.cells_per_agent), "-np", "1")
        self.ours = Contender("polykv pool", options.server, unified, create_pool, pooled=True)
        self.peers = [
            Contender("split", options.peer, split, nothing),
            Contender("unified", options.peer, unified, nothing),
            Contender("unified, warmed", options.peer, unified, warm_up),
            Contender("one slot, in turn", options.peer, one, warm_up, concurrent=False),
        ]

    def command_line(self, contender: Contender) -> list[str]:
        return [Path(contender.binary).name, *self._common, *contender.flags]

    def measure(self, contender: Contender) -> Figures:
        """Starts the contender's server afresh, runs the workload once and prints a line."""
        with self._start(contender.binary, contender.flags) as server:
            figures = run_once(server.base_url, contender, self.workload)
        print(
            f"{contender.name:18} wall {figures.wall_s:7.2f} s  TTFT {figures.ttft_s:6.2f} s"
            f"  decode {figures.decode_tps:6.1f} t/s",
            flush=True,
        )
        return figures

    def _start(self, binary: str, flags: Sequence[str]) -> ServerProcess:
        self._count += 1
        return ServerProcess(binary, [*self._common, *flags], self._logs / f"{self._count}.log")

    def _make_workload(self, options: argparse.Namespace) -> Workload:
        needed = options.prefix + options.agents * options.suffix
        with self._start(options.peer, ("-c", "512")) as server:
            tokens = text.tokenize(server.base_url, text.document(options.llama_source))
        if len(tokens) < needed:
            raise SystemExit(f"the document has {len(tokens)} tokens, {needed} are needed")
        starts = range(options.prefix, needed, options.suffix)
        suffixes = [tokens[start : start + options.suffix] for start in starts]
        return Workload(tokens[: options.prefix], suffixes, options.generate)


def nothing(_base_url: str, _workload: Workload) -> dict[str, Any]:
    """Prepares nothing."""
    return {}


def warm_up(base_url: str, workload: Workload) -> dict[str, Any]:
    """Lets the server evaluate the prefix once, so that its own cache may serve the agents."""
    body = {"prompt": workload.prefix, "n_predict": 0, "cache_prompt": True}
    client.call(base_url, "POST", "/completion", body)
    return {}


def create_pool(base_url: str, workload: Workload) -> dict[str, Any]:
    """Makes a pool of the prefix."""
    pool = client.call(base_url, "POST", "/polykv/pools", {"tokens": workload.prefix})
    return {"pool_id": pool["pool_id"]}


def run_once(base_url: str, contender: Contender, workload: Workload) -> Figures:
    """Runs the workload on a fresh server. Raises SystemExit when an agent fell short."""
    start = time.monotonic()
    extra = contender.prepare(base_url, workload)
    prepared = time.monotonic()

    def agent(index: int) -> Completion:
        body = {**workload.body(index), **extra}
        return client.stream_completion(base_url, "/completion", body)

    n_agents = len(workload.suffixes)
    with ThreadPoolExecutor(n_agents) as executor:
        answers = list(executor.map(agent, range(n_agents)))
    check(contender, workload, answers)
    return sum_up(start, prepared, answers)


def check(contender: Contender, workload: Workload, answers: Sequence[Completion]) -> None:
    """Raises SystemExit unless every agent got all its tokens, and a pooled one its prefix."""
    for index, answer in enumerate(answers):
        if answer.error is not None or answer.timings.get("predicted_n") != workload.generate:
            raise SystemExit(f"{contender.name}: agent {index} fell short: {answer.error}")
        if contender.pooled and answer.timings["cache_n"] != len(workload.prefix):
            raise SystemExit(
                f"{contender.name}: agent {index} got {answer.timings['cache_n']} cached tokens, "
                f"the prefix has {len(workload.prefix)}"
            )


def sum_up(start: float, prepared: float, answers: Sequence[Completion]) -> Figures:
    first = min(answer.token_times[0] for answer in answers)
    last = max(answer.token_times[-1] for answer in answers)
    generated = sum(answer.timings["predicted_n"] for answer in answers)
    return Figures(
        wall_s=max(answer.ended_at for answer in answers) - start,
        prepare_s=prepared - start,
        ttft_s=stats.mean(answer.ttft_s for answer in answers),
        ttft_from_start_s=stats.mean(answer.token_times[0] - start for answer in answers),
        decode_tps=generated / (last - first),
        prompt_tokens=sum(answer.timings["prompt_n"] for answer in answers),
        cached_tokens=[answer.timings["cache_n"] for answer in answers],
    )


# Row label, field of Figures, whether more is better.
ROWS = (
    ("wall time, s", "wall_s", False),
    ("mean TTFT, s", "ttft_s", False),
    ("mean TTFT from start, s", "ttft_from_start_s", False),
    ("decode, tokens/s", "decode_tps", True),
)


def report(
    bench: Bench,
    best: Contender,
    layouts: dict[str, Figures],
    pairs: Sequence[tuple[Figures, Figures]],
) -> dict[str, Any]:
    """Prints the table of medians and returns the result document."""
    summary = {name: compare(name, pairs, more) for _, name, more in ROWS}
    print_tables(bench, best, layouts, summary, len(pairs))
    return {
        "workload": {
            "agents": len(bench.workload.suffixes),
            "prefix": len(bench.workload.prefix),
            "suffix": len(bench.workload.suffixes[0]),
            "generate": bench.workload.generate,
        },
        "flags": {
            "ours": bench.command_line(bench.ours),
            **{peer.name: bench.command_line(peer) for peer in bench.peers},
        },
        "peer": best.name,
        "peer_layouts": {name: asdict(figures) for name, figures in layouts.items()},
        "medians": summary,
        "runs": [{"ours": asdict(ours), "peer": asdict(peer)} for ours, peer in pairs],
    }


def compare(
    name: str, pairs: Sequence[tuple[Figures, Figures]], more_is_better: bool
) -> dict[str, float]:
    """Medians of one figure, and by which factor ours is better."""
    ours = stats.median(getattr(pair[0], name) for pair in pairs)
    peer = stats.median(getattr(pair[1], name) for pair in pairs)
    return {"ours": ours, "peer": peer, "ratio": ours / peer if more_is_better else peer / ours}


def print_tables(
    bench: Bench,
    best: Contender,
    layouts: dict[str, Figures],
    summary: dict[str, dict[str, float]],
    n_pairs: int,
) -> None:
    workload = bench.workload
    print(
        f"\n{len(workload.suffixes)} agents, {len(workload.prefix)} shared tokens, "
        f"{len(workload.suffixes[0])} own, {workload.generate} generated; "
        f"medians of {n_pairs} alternating runs, each on a fresh server\n"
    )
    rows = [
        [label, *(summary[name][column] for column in ("ours", "peer", "ratio"))]
        for label, name, _ in ROWS
    ]
    print(stats.table(["", "polykv pool", f"llama-server ({best.name})", "ratio"], rows))
    print("\nWall time counts the creation of the pool, and the peer's warm-up where it has one.")
    print("\npeer layouts, one run each:\n")
    layout_rows = [
        [name, f.wall_s, f.ttft_s, f.decode_tps, f.prompt_tokens] for name, f in layouts.items()
    ]
    header = ["layout", "wall, s", "mean TTFT, s", "decode, t/s", "prompt tokens evaluated"]
    print(stats.table(header, layout_rows))
    print("\nIn 'one slot, in turn' the agents do not run concurrently; it is no candidate.")
