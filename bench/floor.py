"""Three sessions decode over a floor while a 4k-token pool and two 2k-token prompts are computed.

One run for each floor, and one of llama-server, which knows no floors and gets the pool's tokens as a
prompt; every run on a freshly started server. Largest gap and mean: of the sessions' tokens as their
client reads them, from the moment when the pool and the prompts are sent until all three are there.
Prefill share: time of the steps with prompt tokens, of that whole time. Prefill rate: prompt tokens per
second of those steps, which also decode the sessions' tokens, beside llama-bench's rate for prompts as
long as the mean chunk, measured right after the run; behind an empty context, and behind as many tokens
as the prompt tokens of the run had before them on average.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import client, options as paths, stats, text
from harness.crowd import Call, Crowd, stream_body
from harness.server import ServerProcess, clean_environment
from harness.targets import Target, print_verdict

STREAMS = 3
STREAM_PROMPT = 64
STREAM_TOKENS = 4000
WARM_TOKENS = 150  # of each stream, before anything arrives
POOL, PROMPT, PROMPTS = 4096, 2048, 2
CELLS = 32768
SHARE, EFFICIENCY = 0.1, 0.85
MEAN_DEPTH = (POOL * POOL + PROMPTS * PROMPT * PROMPT) // (2 * (POOL + PROMPTS * PROMPT))
STEPS = "opencoti_polykv:prefill_steps_total"
TOKENS = "llamacpp:prompt_tokens_total"
SECONDS = "llamacpp:prompt_seconds_total"


@dataclass(frozen=True)
class Run:
    """What the sessions' client saw while the rest was computed."""

    largest_gap_s: float
    slowest_mean_tps: float
    window_s: float
    ttft_s: float  # the longest of the prompts'


@dataclass(frozen=True)
class Prefill:
    """From the server's counters, and llama-bench's rates for it."""

    share: float
    mean_chunk: float
    tokens_per_s: float
    bench_tokens_per_s: float
    bench_deep_tokens_per_s: float

    @property
    def efficiency(self) -> float:
        return self.tokens_per_s / self.bench_tokens_per_s

    @property
    def deep_efficiency(self) -> float:
        return self.tokens_per_s / self.bench_deep_tokens_per_s


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--peer", "--model", "--llama-source")
    parser.add_argument("--floors", nargs="*", type=float, default=[2, 5, 10], metavar="TPS")
    parser.add_argument("--no-peer", action="store_true", help="without the run of llama-server")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    with tempfile.TemporaryDirectory(prefix="polykv-bench-") as folder:
        bench = Bench(options, Path(folder))
        ours = {floor: bench.measure(floor) for floor in options.floors}
        peer = None if options.no_peer else bench.measure_peer()
    return report(bench, ours, peer)


class Bench:
    def __init__(self, options: argparse.Namespace, logs: Path) -> None:
        self._options = options
        self._logs = logs
        self.flags = ["-m", options.model, "-c", str(CELLS), "-np", str(STREAMS + PROMPTS + 1)]
        self.flags += ["--kv-unified", "--metrics"]

    def measure(self, floor: float) -> tuple[Run, Prefill]:
        log = self._logs / f"floor-{floor:g}.log"
        with ServerProcess(self._options.server, self.flags, log) as server:
            scene = Scene(server, self._options.llama_source)
            prompt = scene.take(STREAM_PROMPT)
            client.call(server.base_url, "POST", "/polykv/pools", {"name": "p", "tokens": prompt})
            policy = {"target_tps_per_session": floor}
            client.call(server.base_url, "POST", "/polykv/pools/p/admission", policy)
            for i in range(STREAMS):
                scene.start(prompt, pool_id="p", session_id=f"s{i}")
            scene.warm_up()
            before = counters(server)
            pool = Call("POST", "/polykv/pools", {"name": "big", "tokens": scene.take(POOL)})
            result = scene.watch([pool])
            after = counters(server)
        spent = {name: after[name] - before[name] for name in before}
        prefill = self._compare(spent, result.window_s)
        print(f"floor {floor:g}: {asdict(result)} {asdict(prefill)}", flush=True)
        return result, prefill

    def measure_peer(self) -> Run:
        with ServerProcess(self._options.peer, self.flags, self._logs / "peer.log") as server:
            scene = Scene(server, self._options.llama_source)
            prompt = scene.take(STREAM_PROMPT)
            for _ in range(STREAMS):
                scene.start(prompt)
            scene.warm_up()
            result = scene.watch([Call("POST", "/completion", stream_body(scene.take(POOL), 1))])
        print(f"llama-server: {asdict(result)}", flush=True)
        return result

    def _compare(self, spent: dict[str, float], window_s: float) -> Prefill:
        chunk = spent[TOKENS] / spent[STEPS]
        return Prefill(
            share=spent[SECONDS] / window_s,
            mean_chunk=chunk,
            tokens_per_s=spent[TOKENS] / spent[SECONDS],
            bench_tokens_per_s=self._bench_rate(round(chunk), 0),
            bench_deep_tokens_per_s=self._bench_rate(round(chunk), MEAN_DEPTH),
        )

    def _bench_rate(self, n_tokens: int, depth: int) -> float:
        """llama-bench's tokens per second of such a prompt."""
        program = str(Path(self._options.peer).with_name("llama-bench"))
        command = [program, "-m", self._options.model, "-p", str(n_tokens), "-n", "0"]
        command += ["-d", str(depth), "-fa", "1", "-r", "3", "-o", "json"]
        answer = subprocess.run(command, capture_output=True, check=True, env=clean_environment())
        return float(json.loads(answer.stdout)[0]["avg_ts"])


class Scene:
    """The streams of one server, and what arrives while they decode."""

    def __init__(self, server: ServerProcess, llama_source: str) -> None:
        self._server = server
        self._document = text.tokenize(server.base_url, text.document(llama_source))
        self._place = 0
        self._crowd = Crowd(server.base_url)
        self._streams: list[Call] = []

    def take(self, n_tokens: int) -> list[int]:
        """Tokens of the document that nobody has had yet."""
        self._place += n_tokens
        return text.cut(self._document, self._place - n_tokens, n_tokens)

    def start(self, prompt: list[int], **fields: Any) -> None:
        body = {**stream_body(prompt, STREAM_TOKENS), **fields}
        self._streams.append(self._crowd.send(Call("POST", "/completion", body)))

    def warm_up(self) -> None:
        while any(len(stream.event_times) < WARM_TOKENS for stream in self._streams):
            self._turn()

    def watch(self, calls: list[Call]) -> Run:
        """Sends the calls and the prompts, waits for all. Raises SystemExit when one is refused."""
        prompts = [Call("POST", "/completion", stream_body(self.take(PROMPT), 1)) for _ in range(PROMPTS)]
        calls = [*calls, *prompts]
        for call in calls:
            self._crowd.send(call)
        while not all(call.ended_at for call in calls):
            self._turn()
        for call in calls:
            if call.status not in (200, 201):
                raise SystemExit(f"{self._server.command[0]}: {call.payload[-500:]!r}")
        begin, end = calls[0].sent_at, max(call.ended_at for call in calls)
        for stream in self._streams:
            self._crowd.cut(stream)
        times = [[at for at in stream.event_times if begin <= at] for stream in self._streams]
        within = [[at for at in each if at <= end] for each in times]
        return Run(
            largest_gap_s=max(largest_gap(stream.event_times, begin, end) for stream in self._streams),
            slowest_mean_tps=min(mean_rate(each) for each in within),
            window_s=end - begin,
            ttft_s=max(call.event_times[0] - call.sent_at for call in prompts),
        )

    def _turn(self) -> None:
        self._crowd.turn(1.0)
        for stream in self._streams:
            if stream.ended_at:
                raise SystemExit(f"{self._server.command[0]}: a stream ended too early")


def largest_gap(times: Sequence[float], begin: float, end: float) -> float:
    gaps = zip(times, times[1:], strict=False)
    return max(after - before for before, after in gaps if after > begin and before < end)


def mean_rate(times: Sequence[float]) -> float:
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0


def counters(server: ServerProcess) -> dict[str, float]:
    body = client.request(server.base_url, "GET", "/metrics").text
    values = {}
    for name in (STEPS, TOKENS, SECONDS):
        found = re.search(rf"^{name} (\S+)$", body, re.MULTILINE)
        if found is None:
            raise SystemExit(f"/metrics has no {name}")
        values[name] = float(found[1])
    return values


def report(
    bench: Bench, ours: dict[float, tuple[Run, Prefill]], peer: Run | None
) -> dict[str, Any]:
    header = ["", "largest gap, s", "allowed", "mean tps", "all done, s", "last prompt, s"]
    rows = [
        [f"floor {floor:g}", f"{run.largest_gap_s:.3f}", f"{2 / floor:.3f}", run.slowest_mean_tps]
        + [run.window_s, run.ttft_s]
        for floor, (run, _) in ours.items()
    ]
    if peer is not None:
        gap = f"{peer.largest_gap_s:.3f}"
        rows.append(["llama-server", gap, "", peer.slowest_mean_tps, peer.window_s, peer.ttft_s])
    print(f"\n{STREAMS} sessions, beside them {POOL} + {PROMPTS} x {PROMPT} tokens\n")
    print(stats.table(header, rows), end="\n\n")
    header = ["", "prefill share", "mean chunk", "tokens/s", "llama-bench", "ratio"]
    header += [f"at depth {MEAN_DEPTH}", "ratio"]
    rows = [
        [f"floor {floor:g}", prefill.share, f"{prefill.mean_chunk:.0f}", prefill.tokens_per_s]
        + [prefill.bench_tokens_per_s, prefill.efficiency]
        + [prefill.bench_deep_tokens_per_s, prefill.deep_efficiency]
        for floor, (_, prefill) in ours.items()
    ]
    print(stats.table(header, rows), end="\n\n")
    targets = [target for floor, result in ours.items() for target in targets_of(floor, *result)]
    print_verdict(targets)
    return {
        "flags": bench.flags,
        "targets": [target.as_json() for target in targets],
        "floors": [
            {"floor": floor, **asdict(run), **asdict(prefill)}
            for floor, (run, prefill) in ours.items()
        ],
        "peer": None if peer is None else asdict(peer),
    }


def targets_of(floor: float, run: Run, prefill: Prefill) -> list[Target]:
    name = f"floor {floor:g}: "
    return [
        Target(name + "largest gap, s", run.largest_gap_s, 2 / floor, at_most=True),
        Target(name + "slowest mean, tokens/s", run.slowest_mean_tps, floor),
        Target(name + "prefill share of the time", prefill.share, SHARE),
        Target(name + "prefill rate / llama-bench", prefill.efficiency, EFFICIENCY),
    ]
