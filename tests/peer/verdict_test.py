from __future__ import annotations

from pathlib import Path

import verdict
from verdict import Exclusion


def test_a_pattern_is_the_whole_name_and_only_a_star_is_special():
    assert Exclusion("a.py::test[1-x]", "").matches("a.py::test[1-x]")
    assert not Exclusion("a.py::test[1-x]", "").matches("a.py::test1")
    assert not Exclusion("a.py::test", "").matches("a.py::test_more")
    assert Exclusion("a.py::*", "").matches("a.py::test[any]")


def test_exclusions_are_a_pattern_and_a_reason():
    text = "# comment\n\na.py::test  no such feature\n"
    assert verdict.read_exclusions(text) == [Exclusion("a.py::test", "no such feature")]


def test_every_exclusion_has_a_reason():
    text = Path(__file__).with_name("exclusions.txt").read_text()
    assert all(exclusion.reason for exclusion in verdict.read_exclusions(text))


def test_results_are_read_from_junit(tmp_path: Path):
    junit = tmp_path / "junit.xml"
    junit.write_text(
        '<testsuites><testsuite><testcase classname="unit.test_a" name="test_1[x]"/>'
        '<testcase classname="unit.test_a" name="test_2"><failure message="no&#10;more"/></testcase>'
        '<testcase classname="unit.test_a" name="test_3"><error message="died"/></testcase>'
        '<testcase classname="unit.test_a" name="test_4"><skipped message="slow"/></testcase>'
        "</testsuite></testsuites>"
    )
    results = verdict.read_results(junit)
    assert results == {
        "test_a.py::test_1[x]": None,
        "test_a.py::test_2": "no",
        "test_a.py::test_3": "died",
        "test_a.py::test_4": "slow",
    }
    assert verdict.passes(results) == {"test_a.py::test_1[x]"}


def test_what_the_peer_passes_is_passed_excluded_or_missing_on_ours():
    found = verdict.judge({"a", "b", "c"}, {"a", "x"}, [Exclusion("b", "why")], complete=True)
    assert (found.passed, found.excluded, found.missing) == ({"a"}, {"b"}, {"c"})
    assert found.idle_exclusions == []


def test_an_excluded_test_that_passes_is_reported():
    found = verdict.judge({"a"}, {"a"}, [Exclusion("a", "why")], complete=True)
    assert found.idle_exclusions == ["a is excluded by 'a', but passes"]
    assert found.passed == {"a"}


def test_an_exclusion_of_nothing_is_reported_when_the_whole_suite_ran():
    exclusions = [Exclusion("gone", "why")]
    assert verdict.judge({"a"}, {"a"}, exclusions, complete=True).idle_exclusions
    assert not verdict.judge({"a"}, {"a"}, exclusions, complete=False).idle_exclusions


def test_the_table_counts_each_file():
    peer = {"a.py::1", "a.py::2", "b.py::1"}
    found = verdict.judge(peer, {"a.py::1"}, [Exclusion("b.py::*", "why")], complete=True)
    rows = [line.split() for line in verdict.table(peer, found).splitlines()]
    assert rows == [
        ["file", "peer", "ours", "excluded", "missing"],
        ["a.py", "2", "1", "0", "1"],
        ["b.py", "1", "0", "1", "0"],
        ["all", "3", "1", "1", "1"],
    ]


def test_an_excluded_test_that_passes_at_times_is_no_problem():
    always, at_times = Exclusion("a.py::a", "never"), Exclusion("a.py::b", "at times: a race")
    both = {"a.py::a", "a.py::b"}
    result = verdict.judge(both, both, [always, at_times], complete=True)
    assert result.idle_exclusions == ["a.py::a is excluded by 'a.py::a', but passes"]
