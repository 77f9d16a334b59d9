"""The run that the measured admission was made for, simulated: ten packages of 55 steps on a floor of 15.

First the policy of that run: a look at the raw mean rate every 5 s, and an agent sent wherever it is at
the floor or over it. It is to overshoot as the run did. Then the same packages on the same model, sent
where the pool's capacity says so. The model's cost is fitted to the run's five rates alone (`fit`).
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness import stats
from harness.targets import Target

Document = dict[str, Any]
Simulate = Callable[[Document], Document]

# Raw mean rates by the agents that were there, and what the two policies came to.
RATES = {2: 38.0, 3: 31.7, 4: 21.7, 5: 15.9, 6: 11.6}
MOST, FLOOR = 6, 15.0
WITHIN = 0.10
SEED = {"wall_s": (2187, 1919), "under_s": (1648, 790), "deep_s": (706, 122)}
UNDER_DOWN, DEEP_DOWN = 0.52, 0.83

FIT_SECONDS = 55
FIT_ROUNDS = 400
FIT_START = (10_000.0, 5_000.0, 1_000.0)


@dataclass(frozen=True)
class Run:
    """Seconds of simulated time; `rates`: the raw mean at the tick that first saw so many agents."""

    rates: dict[int, float]
    most: int
    wall_s: float
    under_s: float
    deep_s: float


def baseline(scenario: Document, simulate: Simulate) -> Run:
    return measure(simulate(scenario))


def measured(scenario: Document, simulate: Simulate) -> Run:
    """The same traffic, sent where the capacity says so."""
    changed = copy.deepcopy(scenario)
    for pool in changed["pools"]:
        pool["policy"]["target_tps_per_session"] = pool["floor"]
        pool["policy"]["mode"] = "enforced"
        pool["policy"]["on_saturation"] = "queue"
        pool["policy"]["queue_timeout_ms"] = 10_000_000
    for group in changed["groups"]:
        group["spawn"] = "capacity"
    return measure(simulate(changed))


def measure(outcome: Document) -> Run:
    rates: dict[int, float] = {}
    for _, _, present, mean, _ in outcome["ticks"]:
        if present > 0:
            rates.setdefault(present, mean)
    series = outcome["series"][0]
    rows, floor = series["rows"], series["floor"]
    spans = [(row[1], after[0] - row[0]) for row, after in zip(rows, rows[1:]) if row[1] > 0]
    return Run(
        rates=rates,
        most=max(present + sent for _, _, present, _, sent in outcome["ticks"]),
        wall_s=outcome["seconds"],
        under_s=sum(s for mean, s in spans if mean < floor),
        deep_s=sum(s for mean, s in spans if mean < floor / 2),
    )


def report(before: Run, after: Run) -> None:
    header = ["", "seed, before", "after", "change", "simulated, before", "after", "change"]
    rows: list[list[object]] = []
    for name, label in (
        ("wall_s", "wall time, s"),
        ("under_s", "under the floor, s"),
        ("deep_s", "under half of it, s"),
    ):
        old, new = getattr(before, name), getattr(after, name)
        seed_old, seed_new = SEED[name]
        rows.append([
            label,
            seed_old,
            seed_new,
            f"{seed_new / seed_old - 1:+.0%}",
            f"{old:.0f}",
            f"{new:.0f}",
            f"{new / old - 1:+.0%}" if old else "-",
        ])
    print(stats.table(header, rows))


def report_rates(run: Run) -> None:
    rows: list[list[object]] = [
        [f"{n} agents", rate, run.rates.get(n, math.nan), f"{run.rates.get(n, math.nan) / rate - 1:+.1%}"]
        for n, rate in RATES.items()
    ]
    print(stats.table(["raw mean rate at a tick", "seed", "simulated", ""], rows))


def targets(before: Run, after: Run) -> list[Target]:
    worst = max(abs(before.rates.get(n, 0) / rate - 1) for n, rate in RATES.items())
    return [
        Target("rates of the baseline, worst error", worst, WITHIN, at_most=True),
        Target("agents at once in the baseline", before.most, MOST),
        *improvements(before, after),
    ]


def improvements(before: Run, after: Run) -> list[Target]:
    return [
        Target("time under the floor, of the baseline's", after.under_s / before.under_s,
               1 - UNDER_DOWN, at_most=True),
        Target("time under half of it, of the baseline's", after.deep_s / (before.deep_s or 1),
               1 - DEEP_DOWN, at_most=True),
        Target("wall time, of the baseline's", after.wall_s / before.wall_s, 1, at_most=True),
    ]  # fmt: skip


def cost_of(constants: tuple[float, ...], rest: Document) -> Document:
    """A step's cost: base + row · rows + crowd · rows², tabulated; `rest`: of prompts and cells."""
    base, row, crowd = constants
    decode = [[n, round(base + row * n + crowd * n * n)] for n in (*range(9), 10, 12, 16)]
    return {**rest, "decode_us": decode}


def fit(scenario: Document, simulate: Simulate) -> Document:
    """The cost whose baseline has the run's five rates, by random steps that get shorter."""
    short = {**scenario, "seconds": FIT_SECONDS}
    rest = {name: value for name, value in scenario["cost"].items() if name != "decode_us"}

    def error(constants: tuple[float, ...]) -> float:
        run = baseline({**short, "cost": cost_of(constants, rest)}, simulate)
        if not run.rates.keys() >= RATES.keys() or run.most != MOST:
            return math.inf
        if any(run.rates[n] < FLOOR for n in RATES if n < MOST):  # at which it sent one more
            return math.inf
        return max(abs(math.log(run.rates[n] / rate)) for n, rate in RATES.items())

    source = random.Random(1)
    best, least, length = FIT_START, error(FIT_START), 0.3
    for _ in range(FIT_ROUNDS):
        tried = tuple(value * math.exp(source.gauss(0, length)) for value in best)
        found = error(tried)
        if found < least:
            best, least = tried, found
            print(f"worst error {math.expm1(least):.1%}: {[round(value) for value in best]}", flush=True)
        length = max(0.02, length * 0.985)
    return cost_of(best, rest)
