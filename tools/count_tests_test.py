"""The closing line of a test run counts what ctest and pytest wrote, and misses no dead run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "count_tests.py"

CTEST = """<testsuite tests="4">
  <testcase name="A" status="run"/>
  <testcase name="B" status="fail"><failure message=""/></testcase>
  <testcase name="C" status="notrun">
    <skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/></testcase>
  <testcase name="D" status="notrun"><skipped message="Unable to find executable"/></testcase>
</testsuite>"""
PYTEST = """<testsuites><testsuite>
  <testcase name="a"/><testcase name="b"/>
  <testcase name="c"><skipped message="why"/></testcase>
</testsuite></testsuites>"""


def run(*paths: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, SCRIPT, *paths], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_sums_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "c.xml").write_text(CTEST)
    (tmp_path / "p.xml").write_text(PYTEST)
    assert run(tmp_path / "p.xml") == (0, "2 passed, 0 failed, 1 skipped\n")
    assert run(tmp_path / "c.xml", tmp_path / "p.xml") == (1, "3 passed, 2 failed, 2 skipped\n")


def test_a_missing_file_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text(PYTEST)
    status, output = run(tmp_path / "p.xml", tmp_path / "none.xml")
    assert (status, output) == (1, "2 passed, 1 failed, 1 skipped\n")


def test_nothing_run_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "p.xml").write_text("<testsuites/>")
    assert run(tmp_path / "p.xml") == (1, "0 passed, 0 failed\n")
