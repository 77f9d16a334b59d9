from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from opencoti_langgraph.control import Capacity, ControlClient, Tps
from rich.console import Console

from courier.agent import Agent, Answer
from courier.display import Lines, Screen, picture
from courier.fleet import Fleet, Tick
from courier.gate import Decision, Move
from courier.history import run_record
from courier.journal import Journal
from tests.unit_tests.scripted_server import CALM
from tests.unit_tests.small_workload import small_workload

ANSWER = Answer("p0", "s0", "text", 1.0, 2.0, 4.0, 9, 5, 8, "stop", 12.5)


@pytest.fixture
def fleet(state: Path) -> Fleet:
    workload = small_workload()
    journal = Journal(state)
    journal.append(run_record("run1", "gated", workload, 1.0))
    audience = Lines(Console(quiet=True))
    return Fleet(workload, ControlClient(), journal, audience, 1.0)


def drawn(fleet: Fleet) -> str:
    console = Console(width=90)
    with console.capture() as capture:
        console.print(picture(fleet))
    return capture.get()


def test_the_picture_shows_rate_gate_and_agents(fleet: Fleet) -> None:
    assert "opening the pool" in drawn(fleet)
    session = {"session_id": "run1/p1", "tps_ewma": 8.25, "state": "decoding"}
    fleet.last_tick = Tick(
        cast(Capacity, {**CALM, "mean_active_tps": 33.04}),
        cast(Tps, {"sessions": [session]}),
        Decision(Move.WAIT, "measurement settling"),
    )
    job = fleet.jobs[1]
    agent = Agent(job, fleet.workload, ControlClient(), 1, fleet.session_id(job), print)
    fleet.agents[cast(Any, "task")] = agent
    text = drawn(fleet)
    assert "small (gated)  0 of 3 packages, 0 of 6 steps" in text
    assert "mean 33.0 tokens/s  floor 10  gate: measurement settling" in text
    row = next(line.split() for line in text.splitlines() if line.startswith("p1"))
    assert row == ["p1", "1/2", "s0", "0", "8.2", "decoding"]


def test_a_finished_step_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    Lines(Console(width=200)).step_finished(ANSWER)
    with Screen(Console(width=200, force_terminal=False)) as screen:
        screen.step_finished(ANSWER)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.endswith("done p0/s0: 8 tokens, 3.0 s, 12.5 tokens/s, 5 cached")


def test_what_a_server_says_is_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    event = {"source": "courier", "name": "retry", "subject": "p0", "detail": "[red]no[/red]"}
    Lines(Console(width=200)).event(event)
    assert "[red]no[/red]" in capsys.readouterr().out
