"""What a benchmark promises, what it measured, and whether that is enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness import stats


@dataclass(frozen=True)
class Target:
    """`measured` is to be at least `limit`, or at most where `at_most`."""

    name: str
    measured: float
    limit: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit

    def as_json(self) -> dict[str, Any]:
        bound = "at_most" if self.at_most else "at_least"
        return {"name": self.name, "measured": self.measured, bound: self.limit, "met": self.met}


def print_verdict(targets: Sequence[Target]) -> None:
    """A table of the targets, and how many of them were met."""
    rows = [
        [
            target.name,
            f"{target.measured:.3f}",
            f"{'<=' if target.at_most else '>='} {target.limit:g}",
            "met" if target.met else "NOT MET",
        ]
        for target in targets
    ]
    print(stats.table(["target", "measured", "wanted", ""], rows))
    print(f"\n{sum(target.met for target in targets)} of {len(targets)} targets met")
