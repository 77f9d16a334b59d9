from __future__ import annotations

from typing import Any, cast

import pytest
from opencoti_langgraph.control import Capacity

from courier.gate import PATIENCE_S, Crew, FloorGate, Move, OpenGate
from courier.workload import Floor
from tests.unit_tests.scripted_server import CALM

FLOOR = Floor(target_tps_per_session=10)


def capacity(**facts: Any) -> Capacity:
    return cast(Capacity, {**CALM, "can_admit": True, **facts})


def crew(n_running: int = 2, n_starting: int = 0, max_agents: int = 4) -> Crew:
    return Crew(n_running, max_agents, n_starting)


@pytest.mark.parametrize(
    ("facts", "who", "move", "reason"),
    [
        ({}, crew(), Move.SPAWN, "projected mean tps holds"),
        ({"projected_mean_tps_if_admitted": 10.0}, crew(), Move.SPAWN, "holds"),
        ({"projected_mean_tps_if_admitted": 9.9}, crew(), Move.WAIT, "below floor"),
        (
            {"mean_active_tps": 15.0, "can_admit": False, "reason": "no cells"},
            crew(),
            Move.WAIT,
            "no",
        ),
        ({"settling": True}, crew(), Move.WAIT, "measurement settling"),
        ({"settling": True, "guaranteed": True}, crew(0), Move.WAIT, "measurement settling"),
        ({"n_warming": 1}, crew(), Move.WAIT, "rates are warming"),
        ({"guaranteed": True, "n_warming": 1}, crew(), Move.SPAWN, "guaranteed minimum"),
        (
            {"guaranteed": True, "projected_mean_tps_if_admitted": 1.0},
            crew(),
            Move.SPAWN,
            "minimum",
        ),
        ({}, crew(n_starting=1), Move.WAIT, "has not begun"),
        ({}, crew(n_running=4), Move.WAIT, "every agent is at work"),
    ],
)
def test_who_may_start(facts: dict[str, Any], who: Crew, move: Move, reason: str) -> None:
    decision = FloorGate(FLOOR).decide(capacity(**facts), who, 0.0)
    assert decision.move is move
    assert reason in decision.reason


SLOW = capacity(mean_active_tps=9.0, can_admit=False, reason="slow")
FAST = capacity(mean_active_tps=11.0)


def test_an_agent_rests_once_the_mean_has_been_under_the_floor_for_a_while() -> None:
    gate = FloorGate(FLOOR)
    assert gate.decide(SLOW, crew(), 0.0).move is Move.WAIT
    assert gate.decide(SLOW, crew(), PATIENCE_S - 0.1).move is Move.WAIT
    assert gate.decide(SLOW, crew(), PATIENCE_S).move is Move.REST
    assert gate.decide(SLOW, crew(), PATIENCE_S + 0.1).move is Move.WAIT  # one at a time


def test_the_guaranteed_number_of_agents_never_rests() -> None:
    gate = FloorGate(Floor(target_tps_per_session=10, guarantee_min_sessions=2))
    gate.decide(SLOW, crew(2), 0.0)
    assert gate.decide(SLOW, crew(2), PATIENCE_S).move is Move.WAIT
    assert gate.decide(SLOW, crew(3), PATIENCE_S).move is Move.REST


def test_a_mean_that_recovers_starts_the_count_again() -> None:
    gate = FloorGate(FLOOR)
    gate.decide(SLOW, crew(), 0.0)
    gate.decide(FAST, crew(4), 1.0)
    assert gate.decide(SLOW, crew(), PATIENCE_S).move is Move.WAIT


@pytest.mark.parametrize("who", [crew(), crew(n_starting=1)])
def test_a_settling_tick_sends_nobody_to_rest(who: Crew) -> None:
    gate = FloorGate(FLOOR)
    settling = capacity(mean_active_tps=1.0, settling=who.n_starting == 0)
    gate.decide(SLOW, crew(), 0.0)
    assert gate.decide(settling, who, PATIENCE_S).move is Move.WAIT
    assert gate.decide(SLOW, crew(), PATIENCE_S + 0.1).move is Move.WAIT  # counts from here
    assert gate.decide(SLOW, crew(), 2 * PATIENCE_S + 0.2).move is Move.REST


def test_a_warming_tick_judges_nothing_and_forgets_nothing() -> None:
    gate = FloorGate(FLOOR)
    gate.decide(SLOW, crew(), 0.0)
    warming = capacity(mean_active_tps=1.0, n_warming=1)
    assert gate.decide(warming, crew(), PATIENCE_S).move is Move.WAIT
    assert gate.decide(SLOW, crew(), PATIENCE_S).move is Move.REST


def test_the_open_gate_asks_nothing() -> None:
    gate = OpenGate()
    nothing = capacity(can_admit=False, settling=True)
    assert gate.decide(nothing, crew(n_starting=3, n_running=3), 0.0).move is Move.SPAWN
    assert gate.decide(nothing, crew(n_running=4), 0.0).move is Move.WAIT
