"""What a run of llama-server's test suite on both servers says: pure functions on test names.

A test is named "test_file.py::test[parameters]".
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MAX_PROBLEM_LENGTH = 200


@dataclass(frozen=True)
class Exclusion:
    """Tests that need not pass on ours. In `pattern`, * stands for any text."""

    pattern: str
    reason: str

    @property
    def may_pass(self) -> bool:
        """The reason says that the test's outcome hangs on what happens first."""
        return self.reason.startswith("at times:")

    def matches(self, test: str) -> bool:
        return re.fullmatch(re.escape(self.pattern).replace(r"\*", ".*"), test) is not None


def read_exclusions(text: str) -> list[Exclusion]:
    """One exclusion a line: pattern, blanks, reason. Lines that start with # are comments."""
    exclusions = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, _, reason = line.partition(" ")
            exclusions.append(Exclusion(pattern, reason.strip()))
    return exclusions


def read_results(junit: Path) -> dict[str, str | None]:
    """Test -> None if it passed, else the beginning of what went wrong, on one line."""
    return {_name(case): _problem(case) for case in ET.parse(junit).getroot().iter("testcase")}


def _name(case: ET.Element) -> str:
    return f"{case.get('classname', '').rpartition('.')[2]}.py::{case.get('name')}"


def _problem(case: ET.Element) -> str | None:
    for kind in ("failure", "error", "skipped"):
        element = case.find(kind)
        if element is not None:
            return element.get("message", kind).strip().partition("\n")[0][:MAX_PROBLEM_LENGTH]
    return None


def passes(results: dict[str, str | None]) -> set[str]:
    return {test for test, problem in results.items() if problem is None}


@dataclass
class Verdict:
    """The tests that the peer passes, by what became of them on ours."""

    passed: set[str] = field(default_factory=set)
    excluded: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    idle_exclusions: list[str] = field(default_factory=list)  # each says what to do about it


def judge(
    peer: set[str], ours: set[str], exclusions: Iterable[Exclusion], complete: bool
) -> Verdict:
    """`complete`: the whole suite ran, so an exclusion without a test to exclude is out of date."""
    verdict = Verdict()
    for exclusion in exclusions:
        excluded = {test for test in peer if exclusion.matches(test)}
        verdict.excluded |= excluded - ours
        verdict.idle_exclusions += [
            f"{test} is excluded by '{exclusion.pattern}', but passes"
            for test in excluded & ours
            if not exclusion.may_pass
        ]
        if complete and not excluded:
            verdict.idle_exclusions.append(
                f"'{exclusion.pattern}' excludes nothing that the pinned llama-server passes"
            )
    verdict.passed = peer & ours
    verdict.missing = peer - ours - verdict.excluded
    return verdict


def table(peer: set[str], verdict: Verdict) -> str:
    """The counts of each test file, and their sums."""
    rows = [("file", "peer", "ours", "excluded", "missing")]
    files = sorted({_file(test) for test in peer})
    for label, of_file in [*((name, {name}) for name in files), ("all", set(files))]:
        counts = [
            sum(_file(test) in of_file for test in tests)
            for tests in (peer, verdict.passed, verdict.excluded, verdict.missing)
        ]
        rows.append((label, *map(str, counts)))
    return "\n".join(f"{row[0]:30}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows)


def _file(test: str) -> str:
    return test.partition("::")[0]
