"""Admission under a floor, on the real model: how many agents a pool takes, and whether its floor holds.

Fixed numbers of agents first, without a policy: for each floor, the best constant. Then for each floor a
ramp: an agent every 300 ms on a pool with an enforced policy that queues, until the number stands; the
simulator is given the same. In the run with the middle floor the load then changes: answers four times
longer; three agents on a second pool that has no policy; prompts of 2,000 tokens. Agents leave after
some hundred tokens and others wait, so the number can follow both ways. At last the best constant of the
first phase meets the same changes. Time under way: about eight minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sim
from harness import client, options as paths, stats, text
from harness.crowd import Call, Crowd
from harness.server import ServerProcess
from harness.targets import Target, print_verdict

SHARES = (0.15, 0.25, 0.40)  # floors, of the single stream's rate
CHANGED = 0.25  # the floor under which the load changes
SLOTS, CELLS = 20, 65536
POOL_TOKENS, TURN_TOKENS = 512, 16
ANSWER, LONGER, LIFE = 96, 384, 600  # tokens of an answer, of a longer one, of an agent
SPAWN_S, WAITING = 0.3, 4
RAMP_S, CHANGE_S, FOLLOW_S, STEADY_S = 40, 25, 10, 10
SWEEP = tuple(range(1, 17))
SWEEP_S, SWEEP_SKIP_S = 7.0, 2.0
INTRUDER_TOKENS, INTRUDER_S = 2000, 8
OTHERS = 3
SAMPLE_S = 0.1
CLOSE, SHARE = 0.95, 0.95

Json = dict[str, Any]


@dataclass
class Sample:
    at: float  # monotonic
    mean: float  # 0: nobody decodes
    attached: int
    settling: bool
    projected: float | None


@dataclass
class Agent:
    name: str
    pool: str
    tokens: list[int]
    n_answered: int = 0
    call: Call | None = None
    started: bool = False


@dataclass
class Traffic:
    """Agents on one server, driven from one thread by `run`."""

    url: str
    document: list[int]
    answer: int = ANSWER
    agents: list[Agent] = field(default_factory=list)
    crowd: Crowd = field(init=False)
    source: random.Random = field(default_factory=lambda: random.Random(1))
    count: int = 0
    extra: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.crowd = Crowd(self.url)

    def some_tokens(self, n: int) -> list[int]:
        return text.cut(self.document, self.source.randrange(len(self.document)), n)

    def send(self, pool: str, prefix: list[int]) -> None:
        self.count += 1
        agent = Agent(f"agent-{self.count}", pool, list(prefix))
        self.agents.append(agent)
        self._ask(agent)

    def _ask(self, agent: Agent) -> None:
        agent.tokens += self.some_tokens(TURN_TOKENS)
        body = {
            "prompt": agent.tokens,
            "pool_id": agent.pool,
            "session_id": agent.name,
            "session_end": agent.n_answered + self.answer >= LIFE,
            "n_predict": self.answer,
            "ignore_eos": True,
            "stream": True,
            "return_tokens": True,
        }
        agent.call = self.crowd.send(
            Call(
                "POST",
                "/completion",
                body,
                on_event=lambda _: setattr(agent, "started", True),
                on_end=lambda call: self._ended(agent, call),
            )
        )

    def _ended(self, agent: Agent, call: Call) -> None:
        if call.status != 200:
            raise SystemExit(f"{agent.name}: {call.status} {call.payload[:300]!r} {call.fault}")
        said = [token for event in call.events if event for token in event.get("tokens", [])]
        agent.tokens += said
        agent.n_answered += len(said)
        if call.body["session_end"]:
            self.agents.remove(agent)
        else:
            self._ask(agent)

    def intrude(self) -> None:
        body = {"prompt": self.some_tokens(INTRUDER_TOKENS), "n_predict": 16, "stream": True}
        self.extra.append(self.crowd.send(Call("POST", "/completion", body)))

    def on(self, pool: str) -> list[Agent]:
        return [agent for agent in self.agents if agent.pool == pool]

    def run(self, seconds: float, keep: Callable[[float], None]) -> None:
        """Drives everybody; `keep(t)` is called about 50 times a second and sends who is missing."""
        begin = time.monotonic()
        while (now := time.monotonic() - begin) < seconds:
            keep(now)
            self.crowd.turn(0.02)

    def stop(self) -> None:
        for agent in self.agents:
            if agent.call is not None:
                self.crowd.cut(agent.call)
        for call in self.extra:
            self.crowd.cut(call)
        self.agents.clear()
        client.call(self.url, "DELETE", "/polykv/sessions?all=1")
        time.sleep(0.5)


class Watch:
    """Samples a pool's capacity until it is stopped."""

    def __init__(self, url: str, pool: str) -> None:
        self.samples: list[Sample] = []
        self._path = f"/polykv/pools/{pool}/capacity"
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            at = time.monotonic()
            seen = client.call(self._url, "GET", self._path)
            self.samples.append(
                Sample(
                    at,
                    seen["mean_active_tps"] or 0.0,
                    seen["n_pool_sessions"],
                    seen["settling"],
                    seen["projected_mean_tps_if_admitted"],
                )
            )

    def stop(self) -> list[Sample]:
        self._stop.set()
        self._thread.join()
        return self.samples


@contextmanager
def watching(url: str, pool: str) -> Iterator[list[Sample]]:
    watch = Watch(url, pool)
    try:
        yield watch.samples
    finally:
        watch.stop()


def holds(samples: list[Sample], floor: float) -> float:
    """The share of the samples with somebody decoding that are over 0.95 × floor."""
    means = [sample.mean for sample in samples if sample.mean > 0]
    return sum(mean >= CLOSE * floor for mean in means) / (len(means) or 1)


def settled(samples: list[Sample]) -> list[Sample]:
    return [sample for sample in samples if not sample.settling]


def after(samples: list[Sample], at: float) -> list[Sample]:
    return [sample for sample in samples if sample.at >= at]


def standing(samples: list[Sample]) -> int:
    """How many were attached, most of the time."""
    return int(stats.median(sample.attached for sample in samples)) if samples else 0


def projection_errors(samples: list[Sample]) -> list[float]:
    """Realized against projected, per admission: the mean once it has settled, relative."""
    errors = []
    for i, (before, sample) in enumerate(zip(samples, samples[1:])):
        if sample.attached != before.attached + 1 or not before.projected:
            continue
        later = next((s for s in samples[i + 1 :] if not s.settling and s.mean > 0), None)
        if later is not None and later.attached == sample.attached:
            errors.append(later.mean / before.projected - 1)
    return errors


@dataclass
class Ramp:
    share: float
    floor: float
    best: int
    admitted: int
    holds: float
    simulated: int
    errors: list[float]


@dataclass
class Phase:
    name: str
    admitted: int
    holds: float


class Bench:
    def __init__(self, url: str, document: list[int], program: Path, cost: Json) -> None:
        self.url = url
        self.traffic = Traffic(url, document)
        self.program = program
        self.cost = cost
        self.pools = 0

    def make_pool(self, floor: float | None) -> tuple[str, list[int]]:
        """A new pool with an enforced policy, or without one."""
        self.pools += 1
        name = f"ramp-{self.pools}"
        tokens = self.traffic.some_tokens(POOL_TOKENS)
        client.call(self.url, "POST", "/polykv/pools", {"name": name, "tokens": tokens})
        policy = {
            "target_tps_per_session": floor or 0.01,
            "mode": "enforced" if floor else "advisory",
            "on_saturation": "queue",
            "queue_timeout_ms": 3_600_000,
        }
        client.call(self.url, "POST", f"/polykv/pools/{name}/admission", policy)
        return name, tokens

    def drop_pool(self, name: str) -> None:
        self.traffic.stop()
        client.call(self.url, "DELETE", f"/polykv/pools/{name}?force=1")

    def constant(self, n: int) -> list[Sample]:
        pool, prefix = self.make_pool(None)
        with watching(self.url, pool) as samples:
            begin = time.monotonic()
            self.traffic.run(SWEEP_S, lambda _: self.fill(pool, prefix, n))
        self.drop_pool(pool)
        return after(samples, begin + SWEEP_SKIP_S)

    def fill(self, pool: str, prefix: list[int], n: int) -> None:
        while len(self.traffic.on(pool)) < n:
            self.traffic.send(pool, prefix)

    def spawner(self, pool: str, prefix: list[int]) -> Callable[[float], None]:
        """Sends an agent every 300 ms, as long as only a few wait."""
        sent_at = [-SPAWN_S]

        def keep(now: float) -> None:
            waiting = sum(not agent.started for agent in self.traffic.on(pool))
            if now - sent_at[0] >= SPAWN_S and waiting < WAITING:
                sent_at[0] = now
                self.traffic.send(pool, prefix)

        return keep

    def ramp(self, floor: float, changes: bool) -> tuple[list[Sample], list[Phase]]:
        pool, prefix = self.make_pool(floor)
        spawn = self.spawner(pool, prefix)
        phases: list[Phase] = []
        with watching(self.url, pool) as samples:
            self.traffic.run(RAMP_S, spawn)
            first = list(samples)
            if changes:
                phases = self.change(pool, samples, floor, spawn)
        self.drop_pool(pool)
        return first, phases

    def change(
        self, pool: str, samples: list[Sample], floor: float, keep: Callable[[float], None]
    ) -> list[Phase]:
        """The three changes one after the other; each phase as it was from 10 s on."""
        phases = []

        def phase(name: str, also: Callable[[float], None]) -> None:
            begin = time.monotonic()

            def both(now: float) -> None:
                keep(now)
                also(now)

            self.traffic.run(CHANGE_S, both)
            late = after(samples, begin + FOLLOW_S)
            phases.append(Phase(name, standing(late), holds(late, floor)))
            print(f"  {name}: {phases[-1].admitted} agents, {phases[-1].holds:.0%} over", flush=True)

        self.traffic.answer = LONGER
        phase("answers four times longer", lambda _: None)
        other, prefix = self.make_pool(None)
        phase("a second pool", lambda _: self.fill(other, prefix, OTHERS))
        for agent in self.traffic.on(other):
            assert agent.call is not None
            self.traffic.crowd.cut(agent.call)
            self.traffic.agents.remove(agent)
        intruded = [0]

        def intrude(now: float) -> None:
            if now >= intruded[0] * INTRUDER_S:
                intruded[0] += 1
                self.traffic.intrude()

        phase("prompts of 2,000 tokens", intrude)
        self.traffic.answer = ANSWER
        return phases

    def constant_phases(self, floor: float, n: int) -> list[Phase]:
        """The changes with a fixed number of agents and no policy."""
        pool, prefix = self.make_pool(None)
        with watching(self.url, pool) as samples:
            phases = self.change(pool, samples, floor, lambda _: self.fill(pool, prefix, n))
        self.drop_pool(pool)
        return phases

    def simulate(self, floor: float) -> int:
        """How many the simulator's ramp admits."""
        queue = {"target_tps_per_session": floor, "on_saturation": "queue", "queue_timeout_ms": 3_600_000}
        scenario = {
            "name": "ramp",
            "seconds": RAMP_S + 3,
            "cost": self.cost,
            "server": {"slots": SLOTS, "cells": CELLS},
            "pools": [{"name": "shared", "tokens": POOL_TOKENS, "policy": queue}],
            "groups": [
                {
                    "name": "agents",
                    "pool": "shared",
                    "agents": 200,
                    "start_s": 3,
                    "every_s": SPAWN_S,
                    "turns": LIFE // ANSWER + 1,
                    "prompt": TURN_TOKENS,
                    "answer": ANSWER,
                }
            ],
        }
        rows = sim.simulate(self.program, scenario)["series"][0]["rows"]
        last = [row[3] for row in rows if row[0] >= RAMP_S + 3 - STEADY_S]
        return int(stats.median(last))


def best_constant(sweep: dict[int, list[Sample]], floor: float) -> int:
    """The largest number of agents with which the floor held, and with every smaller one."""
    best = 0
    for n in sorted(sweep):
        if holds(sweep[n], floor) < SHARE:
            break
        best = n
    return best


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = __doc__
    paths.add_paths(parser, "--server", "--model", "--llama-source")
    parser.add_argument("--cost", default="smollm2", help="step costs for the simulator: a file or a name")
    parser.add_argument("--quick", action="store_true", help="one floor, no constants, to try it out")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measures and prints; returns the result document."""
    flags = ["-m", options.model, "-c", str(CELLS), "-np", str(SLOTS), "-t", str(os.cpu_count())]
    cost = sim.load(options.cost, sim.COSTS)
    with tempfile.TemporaryDirectory(prefix="polykv-bench-") as logs:
        with ServerProcess(options.server, flags, Path(logs) / "server.log") as server:
            document = text.tokenize(server.base_url, text.document(options.llama_source))
            bench = Bench(server.base_url, document, sim.program_of(options.server), cost)
            return measure(bench, flags, options.quick)


def measure(bench: Bench, flags: list[str], quick: bool) -> dict[str, Any]:
    sweep: dict[int, list[Sample]] = {}
    for n in SWEEP:
        sweep[n] = bench.constant(n)
        rates = [sample.mean for sample in sweep[n] if sample.mean > 0]
        print(f"{n} agents: {stats.mean(rates):.1f} tokens/s each", flush=True)
        if quick and n >= 2 or stats.mean(rates) < 0.9 * SHARES[0] * single_rate(sweep):
            break
    ramps: list[Ramp] = []
    phases: list[Phase] = []
    for share in (CHANGED,) if quick else SHARES:
        floor = share * single_rate(sweep)
        best = best_constant(sweep, floor)
        samples, changed = bench.ramp(floor, changes=share == CHANGED)
        phases += changed
        late = after(samples, samples[-1].at - STEADY_S)
        ramps.append(
            Ramp(
                share,
                floor,
                best,
                standing(late),
                holds(settled(samples), floor),
                bench.simulate(floor),
                projection_errors(samples),
            )
        )
        print(json.dumps(ramps[-1].__dict__), flush=True)
    middle = next(ramp for ramp in ramps if ramp.share == CHANGED)
    constant = [] if quick else bench.constant_phases(middle.floor, middle.best)
    targets = [target for ramp in ramps for target in ramp_targets(ramp)]
    targets += phase_targets(phases, constant)
    report(ramps, phases, constant)
    print()
    print_verdict(targets)
    return {
        "flags": flags,
        "sweep": {n: stats.mean(s.mean for s in samples) for n, samples in sweep.items()},
        "ramps": [ramp.__dict__ for ramp in ramps],
        "phases": [phase.__dict__ for phase in phases],
        "constant": [phase.__dict__ for phase in constant],
        "targets": [target.as_json() for target in targets],
    }


def single_rate(sweep: dict[int, list[Sample]]) -> float:
    return stats.mean(sample.mean for sample in sweep[1] if sample.mean > 0)


def ramp_targets(ramp: Ramp) -> list[Target]:
    name = f"floor {ramp.share:.0%}"
    return [
        Target(f"{name}: settled samples over 0.95 × floor", ramp.holds, SHARE),
        Target(f"{name}: agents fewer than the best constant", ramp.best - ramp.admitted, 1, at_most=True),
        Target(f"{name}: agents off the simulated", abs(ramp.simulated - ramp.admitted), 1, at_most=True),
    ]


def phase_targets(phases: list[Phase], constant: list[Phase]) -> list[Target]:
    targets = [Target(f"{phase.name}, from 10 s on: over 0.95 × floor", phase.holds, SHARE) for phase in phases]
    if constant:
        worst = min(phase.holds for phase in constant)
        targets.append(Target("the best constant breaks the floor: over it", worst, SHARE, at_most=True))
    return targets


def report(ramps: list[Ramp], phases: list[Phase], constant: list[Phase]) -> None:
    rows: list[list[object]] = [
        [
            f"{ramp.share:.0%}",
            ramp.floor,
            ramp.best,
            ramp.admitted,
            ramp.simulated,
            f"{ramp.holds:.0%}",
            f"{stats.mean(ramp.errors):+.1%}" if ramp.errors else "-",
            f"{max(map(abs, ramp.errors)):.1%}" if ramp.errors else "-",
        ]
        for ramp in ramps
    ]
    header = ["floor", "tps", "best constant", "admitted", "simulated", "settled over", "error", "worst"]
    print("\nramps; error: realized mean against the projected one\n")
    print(stats.table(header, rows))
    header = ["from 10 s after the change on", "admitted", "over", "constant", "over"]
    fixed = {phase.name: phase for phase in constant}
    rows = [
        [
            phase.name,
            phase.admitted,
            f"{phase.holds:.0%}",
            fixed[phase.name].admitted if fixed else "-",
            f"{fixed[phase.name].holds:.0%}" if fixed else "-",
        ]
        for phase in phases
    ]
    print()
    print(stats.table(header, rows))
