"""How many agents a second a server takes while their turns stay good, against llama-server.

Open loop: agents arrive at random, whether or not the server keeps up. Each shares a beginning with the
others, has some turns with tool calls of 1 to 5 s between them, and prompts and answers of mixed length. A
turn is good if its first token comes within 5 s and its tokens, on average, at the floor or faster. Ours:
a pool whose enforced policy lets agents wait. Theirs: all slots in one cache, with the prompt cache on.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import chart, client, options as paths, stats, text
from harness.crowd import Call, Crowd
from harness.server import ServerProcess
from harness.targets import Target, print_verdict

RATES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.6)  # agents per second
FLOOR, TTFT_S, GOOD, RATIO = 10.0, 5.0, 0.90, 2.0
SHARED, TURNS, PROMPT, ANSWER, GAP_S = 1024, (3, 6), (20, 120), (20, 100), (1.0, 5.0)
SLOTS, CELLS = 16, 32768
RUN_S = 40.0

Json = dict[str, Any]


@dataclass
class Turn:
    """`tokens`: that came; a turn that was refused or cut short of its first token has none."""

    sent_at: float
    first_at: float = 0.0
    last_at: float = 0.0
    tokens: int = 0

    @property
    def good(self) -> bool:
        if self.tokens == 0 or self.first_at - self.sent_at > TTFT_S:
            return False
        return self.tokens < 2 or (self.last_at - self.first_at) / (self.tokens - 1) <= 1 / FLOOR


@dataclass
class Agent:
    name: str
    tokens: list[int]
    turns_left: int
    source: random.Random


@dataclass
class Arrivals:
    """One run of one rate on one server. The same seed brings the same agents to both."""

    url: str
    fields: Json  # of each request, besides what its agent says
    named: bool  # whether agents are sessions
    document: list[int]
    rate: float
    turns: list[Turn] = field(default_factory=list)

    def run(self) -> list[Turn]:
        source = random.Random(round(self.rate * 1000))
        begin = time.monotonic()
        due = [(source.expovariate(self.rate), 0)]
        later: list[tuple[float, Callable[[], None]]] = []
        with Crowd(self.url) as crowd:
            while (now := time.monotonic() - begin) < RUN_S:
                while due[0][0] <= now:
                    at, number = due.pop()
                    due.append((at + source.expovariate(self.rate), number + 1))
                    self.ask(crowd, later, begin, self.agent(number))
                for item in [item for item in later if item[0] <= now]:
                    later.remove(item)
                    item[1]()
                crowd.turn(0.02)
        cut = time.monotonic()
        # Turns that were sent too late to be judged do not count.
        return [turn for turn in self.turns if turn.tokens > 0 or cut - turn.sent_at > TTFT_S]

    def agent(self, number: int) -> Agent:
        source = random.Random(number)
        shared = text.cut(self.document, 0, SHARED)
        return Agent(f"agent-{self.rate}-{number}", shared, source.randint(*TURNS), source)

    def ask(self, crowd: Crowd, later: Any, begin: float, agent: Agent) -> None:
        start = agent.source.randrange(len(self.document))
        agent.tokens += text.cut(self.document, start, agent.source.randint(*PROMPT))
        agent.turns_left -= 1
        body = {
            **self.fields,
            "prompt": agent.tokens,
            "n_predict": agent.source.randint(*ANSWER),
            "ignore_eos": True,
            "stream": True,
            "return_tokens": True,
        }
        if self.named:
            body |= {"session_id": agent.name, "session_end": agent.turns_left == 0}
        turn = Turn(time.monotonic())
        self.turns.append(turn)

        def on_event(call: Call) -> None:
            turn.tokens = len(call.event_times)
            turn.first_at, turn.last_at = call.event_times[0], call.event_times[-1]

        def on_end(call: Call) -> None:
            if call.status != 200:
                turn.tokens = 0
                return
            agent.tokens += [t for event in call.events if event for t in event.get("tokens", [])]
            if agent.turns_left > 0:
                at = time.monotonic() - begin + agent.source.uniform(*GAP_S)
                later.append((at, lambda: self.ask(crowd, later, begin, agent)))

        crowd.send(Call("POST", "/completion", body, on_event=on_event, on_end=on_end))


def good_share(turns: list[Turn]) -> float:
    return sum(turn.good for turn in turns) / len(turns) if turns else 1.0


def rate_at(curve: list[tuple[float, float]], share: float) -> float:
    """Where the curve falls through `share`, along straight lines; the last rate if it does not."""
    before = (0.0, 1.0)
    for point in curve:
        if point[1] < share:
            return before[0] + (point[0] - before[0]) * (before[1] - share) / (before[1] - point[1])
        before = point
    return before[0]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--peer", "--model", "--llama-source")
    parser.add_argument("--rates", type=float, nargs="*", default=RATES, help="agents per second")
    parser.add_argument("--chart", type=Path, default=Path("goodput.svg"), help="where the chart goes")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    flags = ["-m", options.model, "-c", str(CELLS), "-np", str(SLOTS), "-t", str(os.cpu_count())]
    flags += ["--kv-unified"]
    curves: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="polykv-bench-") as logs:
        for name, binary in (("polykv", options.server), ("llama-server", options.peer)):
            curves[name] = []
            for rate in options.rates:
                with ServerProcess(binary, flags, Path(logs) / f"{name}.log") as server:
                    turns = measure(server.base_url, name == "polykv", rate, options.llama_source)
                curves[name].append((rate, good_share(turns)))
                print(f"{name}, {rate:g} agents/s: {len(turns)} turns, {curves[name][-1][1]:.0%} good", flush=True)
                if curves[name][-1][1] < GOOD / 2:
                    break
    return report(options, flags, curves)


def measure(url: str, ours: bool, rate: float, llama_source: str) -> list[Turn]:
    document = text.tokenize(url, text.document(llama_source))
    fields: Json = {}
    shared = text.cut(document, 0, SHARED)
    if ours:
        client.call(url, "POST", "/polykv/pools", {"name": "shared", "tokens": shared})
        policy = {"target_tps_per_session": FLOOR, "mode": "enforced", "on_saturation": "queue"}
        client.call(url, "POST", "/polykv/pools/shared/admission", policy)
        fields = {"pool_id": "shared"}
    else:  # warmed alike: the prompt cache has the beginning
        client.call(url, "POST", "/completion", {"prompt": shared, "n_predict": 1})
    return Arrivals(url, fields, ours, document, rate).run()


def report(
    options: argparse.Namespace, flags: list[str], curves: dict[str, list[tuple[float, float]]]
) -> dict[str, Any]:
    reached = {name: rate_at(curve, GOOD) for name, curve in curves.items()}
    rows: list[list[object]] = [
        [f"{rate:g} agents/s", *(f"{dict(curves[name]).get(rate, 0):.0%}" for name in curves)]
        for rate in options.rates
    ]
    print("\nshare of good turns\n")
    print(stats.table(["arrivals", *curves], rows))
    lines = [chart.Line(name, [(0, 1), *curve]) for name, curve in curves.items()]
    picture = chart.Chart("good turns", "agents per second", "share of turns", lines)
    options.chart.write_text(chart.render([picture]), encoding="utf-8")
    print(f"\nwritten: {options.chart}\n")
    ratio = reached["polykv"] / reached["llama-server"]
    targets = [Target("arrival rate at 90 % good turns, of llama-server's", ratio, RATIO)]
    print_verdict(targets)
    return {
        "flags": flags,
        "curves": curves,
        "reached": reached,
        "targets": [target.as_json() for target in targets],
    }
