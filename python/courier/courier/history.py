"""What the records of a run say: how far it is, and what it holds on the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from courier.journal import Record
from courier.workload import Workload

VERSION = 1


class HistoryError(Exception):
    """The records are of another run than the one that is to go on."""


def run_record(run_id: str, mode: str, workload: Workload, at: float) -> Record:
    """The first record of a run: with it a report needs no workload file."""
    return {
        "kind": "run",
        "version": VERSION,
        "at": at,
        "run_id": run_id,
        "mode": mode,
        "workload": workload.name,
        "digest": workload.digest(),
        "floor": workload.floor.model_dump(),
        "max_agents": workload.max_agents,
        "packages": {
            package.id: [step.id for step in workload.steps_of(package)]
            for package in workload.packages
        },
    }


class History:
    """The records of one run, its `run` record first."""

    def __init__(self, records: Iterable[Record]) -> None:
        """Raises HistoryError."""
        self.records = list(records)
        head = self.records[0] if self.records else {}
        if head.get("kind") != "run" or head.get("version") != VERSION:
            raise HistoryError("this is not the state of a run, or of another version's")
        self.head = head

    def check(self, mode: str, workload: Workload) -> None:
        """Raises HistoryError if the run is not of this mode and workload."""
        if self.head["digest"] != workload.digest():
            raise HistoryError("the workload is not the one that this run began with")
        if self.head["mode"] != mode:
            raise HistoryError(f"this run is {self.head['mode']}, not {mode}")

    def answers(self, package_id: str) -> list[str]:
        """The texts of the package's finished steps, in order."""
        return [
            record["text"]
            for record in self.records
            if record["kind"] == "step" and record["package"] == package_id
        ]

    def references(self, boot_id: int) -> Counter[int]:
        """How many references to which pools of this boot the run has taken and not given back."""
        taken: Counter[int] = Counter()
        for record in self.records:
            if record["kind"] == "pool" and record["boot_id"] == boot_id:
                taken[record["pool_id"]] += 1
            elif record["kind"] == "released" and record["boot_id"] == boot_id:
                taken[record["pool_id"]] -= 1
        return +taken
