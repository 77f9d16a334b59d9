"""A run in numbers, from its records. Pure.

Times in the result are seconds of the run: 0 at its start, and without the time in which no courier
worked on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from courier.history import History
from courier.journal import Record

Json = dict[str, Any]
Span = tuple[float, float]

LONGEST_SAMPLE_S = 2.0  # a sample stands for the time until the next one, and at most for so long


class RunClock:
    """Unix seconds to seconds of the run."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.lives: list[Span] = []  # in seconds of the run
        self._starts: list[float] = []  # of the lives, in Unix seconds
        elapsed = 0.0
        for start, end in _lives(records):
            self._starts.append(start)
            self.lives.append((elapsed, elapsed + end - start))
            elapsed += end - start

    @property
    def total_s(self) -> float:
        return self.lives[-1][1] if self.lives else 0.0

    def __call__(self, at: float) -> float:
        for start, life in zip(reversed(self._starts), reversed(self.lives), strict=True):
            if at >= start:
                return min(life[0] + at - start, life[1])
        return 0.0


def _lives(records: Sequence[Record]) -> Iterator[Span]:
    start = end = None
    for record in records:
        if record["kind"] == "life":
            if start is not None and end is not None:
                yield start, end
            start = record["at"]
        end = record["at"]
    if start is not None and end is not None:
        yield start, end


def figures(history: History) -> Json:
    """The whole report."""
    records = history.records
    clock = RunClock(records)
    steps = [_step(record, clock) for record in records if record["kind"] == "step"]
    samples = [_sample(record, clock) for record in records if record["kind"] == "sample"]
    events = [_event(record, clock) for record in records if record["kind"] == "event"]
    pools = [record for record in records if record["kind"] == "pool"]
    packages = _packages(history.head, steps)
    floor = history.head["floor"]["target_tps_per_session"]
    prefix_len = max((pool["prefix_len"] for pool in pools), default=0)
    return {
        "workload": history.head["workload"],
        "run_id": history.head["run_id"],
        "mode": history.head["mode"],
        "started_at": history.head["at"],
        "floor": history.head["floor"],
        "max_agents": history.head["max_agents"],
        "server": _server(pools),
        "summary": _work(packages, steps, clock) | _floor_figures(samples, floor),
        "cache": _cache(steps, prefix_len),
        "lives": [list(life) for life in clock.lives],
        "packages": packages,
        "events": events,
        "settling": [list(span) for span in settling_spans(events, samples, clock.total_s)],
        "samples": samples,
    }


def _server(pools: Sequence[Record]) -> Json:
    names = ("url", "model", "total_slots", "prefix_len", "n_prefilled", "prefill_ms")
    return {name: pools[-1].get(name) for name in names} if pools else {}


def _step(record: Record, clock: RunClock) -> Json:
    decode_s = record["ended_at"] - record["first_token_at"]
    n_gaps = record["n_generated"] - 1
    return {
        "package": record["package"],
        "step": record["step"],
        "asked_s": clock(record["asked_at"]),
        "first_token_s": clock(record["first_token_at"]),
        "ended_s": clock(record["ended_at"]),
        "tps": n_gaps / decode_s if n_gaps > 0 and decode_s > 0 else None,
        **{name: record[name] for name in ("n_prompt", "n_cached", "n_generated")},
        "finish_reason": record["finish_reason"],
        "text": record["text"],
    }


def _sample(record: Record, clock: RunClock) -> Json:
    rest = {name: value for name, value in record.items() if name not in ("kind", "at")}
    return {"at_s": clock(record["at"]), **rest}


def _event(record: Record, clock: RunClock) -> Json:
    names = ("source", "name", "subject", "detail")
    return {"at_s": clock(record["at"]), **{name: record[name] for name in names}}


def _packages(head: Record, steps: Iterable[Json]) -> list[Json]:
    done: dict[str, list[Json]] = defaultdict(list)
    for step in steps:
        done[step["package"]].append(step)
    return [
        {
            "package": package,
            "n_steps": len(step_ids),
            "is_done": len(done[package]) == len(step_ids),
            "steps": done[package],
        }
        for package, step_ids in head["packages"].items()
    ]


def _work(packages: Sequence[Json], steps: Sequence[Json], clock: RunClock) -> Json:
    delivered = [package["steps"][-1]["ended_s"] for package in packages if package["is_done"]]
    return {
        "wall_s": clock.total_s,
        "n_lives": len(clock.lives),
        "n_packages": len(packages),
        "n_packages_done": len(delivered),
        "n_steps": sum(package["n_steps"] for package in packages),
        "n_steps_done": len(steps),
        "n_generated": sum(step["n_generated"] for step in steps),
        "median_delivery_s": median(delivered) if delivered else None,
    }


def _floor_figures(samples: Sequence[Json], floor: float) -> Json:
    """Time under the floor: of the mean rate, and summed over the sessions."""
    active_s = under_s = deep_s = session_s = session_under_s = token_rate_s = agents_s = 0.0
    for sample, seconds in weighted(samples):
        agents_s += sample["n_running"] * seconds
        for rate in sample["tps"].values():
            session_s += seconds
            session_under_s += seconds * (rate < floor)
        mean = sample["mean_active_tps"]
        if mean is not None:
            active_s += seconds
            token_rate_s += mean * seconds
            under_s += seconds * (mean < floor)
            deep_s += seconds * (mean < floor / 2)
    total_s = sum(seconds for _, seconds in weighted(samples))
    return {
        "decoding_s": active_s,
        "under_floor_s": under_s,
        "under_half_floor_s": deep_s,
        "under_floor_share": under_s / active_s if active_s else 0.0,
        "session_decoding_s": session_s,
        "session_under_floor_s": session_under_s,
        "mean_active_tps": token_rate_s / active_s if active_s else None,
        "mean_agents": agents_s / total_s if total_s else 0.0,
        "most_agents": max((sample["n_running"] for sample in samples), default=0),
    }


def weighted(samples: Sequence[Json]) -> Iterator[tuple[Json, float]]:
    """Each sample but the last with the seconds that it stands for."""
    for sample, following in pairwise(samples):
        yield sample, min(following["at_s"] - sample["at_s"], LONGEST_SAMPLE_S)


def _cache(steps: Sequence[Json], prefix_len: int) -> Json:
    """Where the tokens of all prompts came from."""
    prompt = sum(step["n_prompt"] for step in steps)
    pool = sum(min(step["n_cached"], prefix_len) for step in steps)
    cached = sum(step["n_cached"] for step in steps)
    return {
        "n_prompt": prompt,
        "n_from_pool": pool,
        "n_from_session": cached - pool,
        "n_computed": prompt - cached,
        "saved_share": cached / prompt if prompt else 0.0,
    }


def settling_spans(events: Sequence[Json], samples: Sequence[Json], total_s: float) -> list[Span]:
    """When something settled: as the server's events tell it, else as far as samples show it."""
    changes = [
        (event["at_s"], 1 if event["name"] == "settle_begun" else -1)
        for event in events
        if event["name"] in ("settle_begun", "settle_ended")
    ]
    if not changes:
        changes = _sampled_changes(samples)
    spans = []
    n_open, since = 0, 0.0
    for at_s, change in changes:
        if n_open == 0 and change > 0:
            since = at_s
        n_open = max(0, n_open + change)
        if n_open == 0 and change < 0:
            spans.append((since, at_s))
    if n_open > 0:
        spans.append((since, total_s))
    return spans


def _sampled_changes(samples: Sequence[Json]) -> list[tuple[float, int]]:
    changes = []
    settling = False
    for sample in samples:
        if sample["settling"] != settling:
            settling = sample["settling"]
            changes.append((sample["at_s"], 1 if settling else -1))
    return changes
