"""Sums up JUnit files of ctest and pytest as one line: N passed, N failed[, N skipped].

    python3 tools/count_tests.py FILE...

Exits 1 if a test failed, if none passed, or if a file is missing: its test run died.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

# ctest also reports a test whose executable is missing as "skipped".
CTEST_SKIPPED = ("SKIP_REGULAR_EXPRESSION_MATCHED", "SKIP_RETURN_CODE", "Disabled")


def outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    if case.get("status") == "notrun":  # only ctest has this attribute
        message = skipped.get("message", "")
        return "skipped" if message.startswith(CTEST_SKIPPED) else "failed"
    return "skipped"


def count(paths: list[Path]) -> dict[str, int]:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in paths:
        try:
            cases = list(ET.parse(path).getroot().iter("testcase"))
        except (OSError, ET.ParseError) as error:
            print(f"no test results in {path}: {error}", file=sys.stderr)
            counts["failed"] += 1
            continue
        for case in cases:
            counts[outcome(case)] += 1
    return counts


def main() -> int:
    counts = count([Path(argument) for argument in sys.argv[1:]])
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        line += f", {counts['skipped']} skipped"
    print(line, flush=True)
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
