from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from courier import report
from courier.history import History, run_record
from courier.journal import Record
from courier.report.charts import nice_step, rates_chart
from courier.report.figures import RunClock, figures
from courier.report.page import page
from tests.unit_tests.scripted_server import CALM
from tests.unit_tests.small_workload import small_workload

EVIL = "<img src=x onerror=alert(1)>&\"'"


def life(at: float) -> Record:
    return {"kind": "life", "at": at, "pid": 1}


def sample(at: float, mean: float | None, settling: bool = False, **tps: float) -> Record:
    return {
        **CALM,
        "kind": "sample",
        "at": at,
        "aggregate_tps": 0.0,
        "n_running": len(tps),
        "n_queued": 0,
        "tps": tps,
        "mean_active_tps": mean,
        "settling": settling,
    }


def step(at: float, package: str, name: str, **fields: Any) -> Record:
    return {
        "kind": "step",
        "at": at,
        "package": package,
        "step": name,
        "text": EVIL,
        "asked_at": at - 3,
        "first_token_at": at - 2,
        "ended_at": at,
        "n_prompt": 100,
        "n_cached": 90,
        "n_generated": 21,
        "finish_reason": "stop",
        **fields,
    }


def event(at: float, name: str, subject: str = "", source: str = "courier") -> Record:
    return {
        "kind": "event",
        "at": at,
        "name": name,
        "subject": subject,
        "detail": EVIL,
        "source": source,
    }


def pool(at: float) -> Record:
    return {"kind": "pool", "at": at, "boot_id": 1, "pool_id": 1, "prefix_len": 80, "model": EVIL}


def history() -> History:
    return History(
        [
            run_record("r", "gated", small_workload(2, 2), 100.0),
            life(100.0),
            pool(101.0),
            sample(102.0, 12.0, p0=12.0),
            sample(103.0, 9.0, settling=True, p0=12.0, p1=6.0),
            sample(104.0, 4.0, p0=12.0, p1=6.0),
            step(104.5, "p0", "s0"),
            sample(105.0, None),
            life(1105.0),
            event(1105.5, "retry", "p0"),
            sample(1106.0, 20.0, p1=20.0),
            sample(1116.0, 20.0, p1=20.0),
            step(1117.0, "p0", "s1", n_cached=50),
            {"kind": "end", "at": 1117.0, "outcome": 0},
        ]
    )


def test_time_without_a_courier_does_not_count() -> None:
    clock = RunClock(history().records)
    assert clock.lives == [(0.0, 5.0), (5.0, 17.0)]
    assert [clock(at) for at in (100.0, 104.0, 600.0, 1105.0, 1107.5)] == [0, 4, 5, 5, 7.5]


def test_time_under_the_floor_is_that_of_the_mean_and_of_each_session() -> None:
    summary = figures(history())["summary"]
    # 12 for 1 s, 9 and 4 for 1 s each, nothing, then 20 for as long as a sample may stand.
    assert summary["decoding_s"] == pytest.approx(5.0)
    assert summary["under_floor_s"] == pytest.approx(2.0)
    assert summary["under_half_floor_s"] == pytest.approx(1.0)
    assert summary["under_floor_share"] == pytest.approx(0.4)
    assert summary["session_decoding_s"] == pytest.approx(7.0)
    assert summary["session_under_floor_s"] == pytest.approx(2.0)
    assert summary["most_agents"] == 2


def test_work_and_cached_tokens_are_counted() -> None:
    result = figures(history())
    assert result["summary"]["n_packages_done"] == 1
    assert result["summary"]["n_steps_done"] == 2
    assert result["summary"]["n_steps"] == 4
    assert result["summary"]["n_generated"] == 42
    assert result["summary"]["median_delivery_s"] == pytest.approx(17.0)
    assert result["packages"][0]["steps"][0]["tps"] == pytest.approx(10.0)
    assert result["cache"] == {
        "n_prompt": 200,
        "n_from_pool": 80 + 50,
        "n_from_session": 10,
        "n_computed": 60,
        "saved_share": 0.7,
    }


def test_settling_is_what_the_server_says_and_else_what_samples_show() -> None:
    assert figures(history())["settling"] == [[3.0, 4.0]]
    told = [
        event(101.5, "settle_begun", source="server"),
        event(101.7, "settle_begun", source="server"),
        event(102.5, "settle_ended", source="server"),
        event(104.5, "settle_ended", source="server"),
        event(1110.0, "settle_begun", source="server"),
    ]
    records = sorted([*history().records[1:], *told], key=lambda record: record["at"])
    result = figures(History([history().head, *records]))
    assert result["settling"] == [[1.5, 4.5], [10.0, 17.0]]


class Outline(HTMLParser):
    """Checks that elements are closed in order; collects their names and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = page(figures(history()))
    outline = Outline()
    outline.feed(text)
    assert not outline.open
    names = {name for name, _ in outline.seen}
    assert not names & {"img", "script", "link", "iframe", "object"}
    assert not any({"src", "href", "onerror"} & attributes.keys() for _, attributes in outline.seen)
    assert "url(" not in text
    assert EVIL in outline.text
    for drawing in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(drawing)
    assert len(re.findall("<svg", text)) == 3


def test_a_long_run_makes_no_large_drawing() -> None:
    records = [*history().records[:3]]
    records += [sample(101.0 + 0.25 * i, 12.0, p0=12.0) for i in range(100_000)]
    drawing = rates_chart(figures(History(records)))
    assert len(drawing) < 200_000
    assert drawing.count('class="mean"') == 1  # in one piece


def test_a_run_that_has_not_begun_has_a_report() -> None:
    assert "0 of 2" in page(figures(History([history().head])))
    assert "0 of 2" in page(figures(History(history().records[:3])))


def test_both_files_are_written(tmp_path: Path) -> None:
    html = report.write(history().records, tmp_path)
    assert html.read_text().startswith("<!doctype html>")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["summary"]["n_steps_done"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


@pytest.mark.parametrize(
    ("most", "n", "step"), [(10, 5, 2), (100, 8, 20), (0.7, 5, 0.2), (1, 1, 1), (61, 8, 10)]
)
def test_axes_have_round_steps(most: float, n: int, step: float) -> None:
    assert nice_step(most, n) == pytest.approx(step)
