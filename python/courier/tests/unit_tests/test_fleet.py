"""A run against a scripted server: what it asks for, when, and what it does about faults."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from opencoti_langgraph.control import ControlClient, OpencotiError

from courier.agent import Answer
from courier.fleet import Fleet, RunAborted
from courier.history import History, run_record
from courier.journal import Journal, Record
from courier.workload import Workload
from tests.unit_tests.scripted_server import Ask, Reply, ScriptedServer, refusal
from tests.unit_tests.small_workload import small_workload

SATURATED = refusal(429, "pool_saturated", retry_after_ms=200, reason="full")


class Listener:
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.events: list[Record] = []

    def step_finished(self, answer: Answer) -> None:
        self.steps.append(f"{answer.package}/{answer.step}")

    def event(self, record: Record) -> None:
        self.events.append(record)

    def tick(self, fleet: Fleet) -> None:
        pass

    def names(self, source: str = "courier") -> list[str]:
        return [event["name"] for event in self.events if event["source"] == source]


class Run:
    """A run with everything around it."""

    def __init__(self, state: Path, workload: Workload, mode: str = "gated") -> None:
        self.journal = Journal(state)
        if not self.journal.records:
            self.journal.append(run_record("run1", mode, workload, 1.0))
        self.listener = Listener()
        self.workload = workload

    async def go(self, url: str, patience_s: float = 60.0) -> bool:
        client = ControlClient(url)
        fleet = Fleet(self.workload, client, self.journal, self.listener, patience_s)
        try:
            return await asyncio.wait_for(fleet.run(), 60)
        finally:
            self.journal.close()


class Settling:
    """A pool in which each new session settles until it was looked at three times."""

    def __init__(self, server: ScriptedServer) -> None:
        self.n_seen = 0  # looks while something settled
        self._server = server
        self._n_sessions = 0
        self.n_left = 0

    def __call__(self) -> dict[str, Any]:
        n_sessions = len({ask.session for ask in self._server.asks})
        self.n_left = 3 if n_sessions > self._n_sessions else max(0, self.n_left - 1)
        self._n_sessions = n_sessions
        self.n_seen += self.n_left > 0
        settling = self.n_left > 0
        return {"settling": settling, "can_admit": not settling, "reason": "settling"}


def once(reply: Reply, step: str = "0: t0") -> Any:
    """Answers the first ask for `step` with `reply`, and all others as usual."""
    pending = [step]

    def answer(ask: Ask) -> Reply:
        if ask.prompt in pending:
            pending.remove(ask.prompt)
            return reply
        return Reply()

    return answer


async def test_each_package_is_one_conversation_in_one_session(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    run = Run(state, workload)
    assert await run.go(server.url)
    assert sorted(run.listener.steps) == [f"p{i}/s{j}" for i in range(3) for j in range(2)]
    last = next(ask for ask in server.asks if ask.prompt == "1: t2")
    assert [message["content"] for message in last.body["messages"]] == [
        "Be brief.",
        "0: t2",
        "one two",
        "1: t2",
    ]
    assert last.body["session_id"] == "run1/p2"
    assert last.body["session_end"] is True
    assert last.body["max_tokens"] == 8
    assert last.body["on_pool_miss"] == "error"
    assert [ask.body["session_end"] for ask in server.asks].count(True) == 3
    assert server.policies[0]["mode"] == "enforced"
    assert server.references == {server.pool_id: 0}


async def test_an_answer_carries_what_the_server_counted(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    run = Run(state, workload)
    await run.go(server.url)
    step = next(record for record in run.journal.records if record["kind"] == "step")
    counts = {name: step[name] for name in ("n_prompt", "n_cached", "n_generated")}
    assert counts == {"n_prompt": 9, "n_cached": 5, "n_generated": 2}
    assert step["session_tps"] == 12.5
    assert step["finish_reason"] == "stop"
    assert step["asked_at"] <= step["first_token_at"] <= step["ended_at"]


async def test_nobody_starts_while_an_admission_settles(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    settling = Settling(server)
    left_at_start = []

    def reply(ask: Ask) -> Reply:
        if ask.prompt.startswith("0: "):
            left_at_start.append(settling.n_left)
        return Reply(piece_s=0.02)

    server.reply = reply
    server.capacity = settling
    run = Run(state, workload)
    assert await run.go(server.url)
    assert settling.n_seen >= 6
    assert left_at_start == [0, 0, 0]


async def test_naive_starts_all_at_once_and_asks_the_server_not_to_keep_a_floor(
    server: ScriptedServer, state: Path
) -> None:
    all_there = threading.Barrier(4)

    def reply(ask: Ask) -> Reply:
        if len(server.asks) <= 4:
            all_there.wait(20)
        return Reply()

    server.reply = reply
    server.capacity = lambda: {"can_admit": False, "reason": "full", "settling": True}
    run = Run(state, small_workload(5, 1, max_agents=4), "naive")
    assert await run.go(server.url)
    assert {ask.n_open for ask in server.asks[:4]} == {1, 2, 3, 4}
    assert server.policies[0]["mode"] == "advisory"


@pytest.mark.parametrize("reply", [SATURATED, refusal(503, "no_free_cells", retry_after_ms=200)])
async def test_a_saturated_server_is_asked_again_when_it_said(
    server: ScriptedServer, state: Path, workload: Workload, reply: Reply
) -> None:
    server.reply = once(reply)
    run = Run(state, workload)
    assert await run.go(server.url)
    times = [ask.at for ask in server.asks if ask.prompt == "0: t0"]
    assert len(times) == 2
    assert times[1] - times[0] >= 0.2
    assert "saturated" in run.listener.names()


@pytest.mark.parametrize(
    "reply",
    [
        Reply(cut_after=1),
        refusal(500, "server_error"),
        Reply(stop_reason="kv_exhausted"),
    ],
    ids=["cut off", "a fault", "cells ran out"],
)
async def test_a_step_that_failed_is_asked_again(
    server: ScriptedServer, state: Path, workload: Workload, reply: Reply
) -> None:
    server.reply = once(reply, "1: t1")
    run = Run(state, workload)
    assert await run.go(server.url)
    assert [ask.prompt for ask in server.asks].count("1: t1") == 2
    assert [ask.prompt for ask in server.asks].count("0: t1") == 1
    assert "retry" in run.listener.names()
    assert [record["text"] for record in run.journal.records if record["kind"] == "step"] == [
        "one two"
    ] * 6


async def test_what_is_refused_fails_its_package_alone(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    server.reply = once(refusal(400, "exceed_context_size_error"), "1: t1")
    run = Run(state, workload)
    assert not await run.go(server.url)
    assert run.listener.names().count("package done") == 2
    assert "package failed" in run.listener.names()
    assert [ask.prompt for ask in server.asks].count("1: t1") == 1

    server.reply = lambda ask: Reply()
    again = Run(state, workload)  # the same command tries what has failed once more
    assert await again.go(server.url)
    assert again.listener.steps == ["p1/s1"]


async def test_a_step_does_not_fail_for_ever(
    server: ScriptedServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("courier.fleet.FIRST_DELAY_S", 0.0)
    server.reply = lambda ask: refusal(500)
    run = Run(state, small_workload(1))
    assert not await run.go(server.url)
    assert len(server.asks) == 10


async def test_a_pool_that_is_gone_is_made_again(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    def forget(ask: Ask) -> Reply:
        if ask.prompt == "1: t0":
            server.reply = lambda ask: Reply()
            server.restart()
            return Reply(cut_after=0)
        return Reply()

    server.reply = forget
    run = Run(state, workload)
    assert await run.go(server.url)
    assert {ask.body["pool_id"] for ask in server.asks} == {1000, 2000}
    assert server.references == {2000: 0}
    assert [ask.prompt for ask in server.asks].count("0: t0") == 1


async def test_a_server_that_comes_back_is_waited_for(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    def stop(ask: Ask) -> Reply:
        if ask.prompt == "1: t0":
            server.reply = lambda ask: Reply()
            threading.Thread(target=stop_and_start).start()
            return Reply(cut_after=0)
        return Reply()

    def stop_and_start() -> None:
        server.stop()
        while "server lost" not in run.listener.names():
            threading.Event().wait(0.01)
        server.start()

    server.reply = stop
    run = Run(state, workload)
    assert await run.go(server.url)
    assert "server back" in run.listener.names()
    assert sorted(run.listener.steps) == [f"p{i}/s{j}" for i in range(3) for j in range(2)]


async def test_a_server_that_stays_away_ends_the_run_with_its_state_kept(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    def stop(ask: Ask) -> Reply:
        if ask.prompt == "1: t0":
            threading.Thread(target=server.stop).start()
            return Reply(cut_after=0)
        return Reply()

    server.reply = stop
    run = Run(state, workload)
    with pytest.raises(RunAborted):
        await run.go(server.url, patience_s=0.2)
    assert History(Journal(state).records).answers("p0") == ["one two"]
    server.start()


async def test_a_server_that_never_was_there_is_said_at_once(state: Path) -> None:
    run = Run(state, small_workload())
    with pytest.raises(OpencotiError):
        await run.go("http://127.0.0.1:9")


async def test_a_run_goes_on_where_it_was(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    first = Run(state, workload)
    asked = threading.Event()

    def reply(ask: Ask) -> Reply:
        if ask.prompt != "1: t1":
            return Reply()
        asked.set()
        return Reply(piece_s=5.0)

    server.reply = reply
    life = asyncio.create_task(first.go(server.url))
    await asyncio.to_thread(asked.wait, 20)
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    finished = set(first.listener.steps)
    assert "p1/s0" in finished
    assert "p1/s1" not in finished

    server.reply = lambda ask: Reply()
    asked_before = len(server.asks)
    second = Run(state, workload)
    assert await second.go(server.url)
    assert not finished & set(second.listener.steps)
    assert len(finished | set(second.listener.steps)) == 6
    assert server.asks[asked_before].prompt == "1: t1"
    assert server.asks[asked_before].body["session_id"] == "run1/p1"
    assert server.references == {server.pool_id: 0}  # the first life's reference too


async def test_what_has_begun_goes_first(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    run = Run(state, workload)
    run.journal.append({"kind": "step", "at": 1.0, "package": "p2", "step": "s0", "text": "!"})
    assert await run.go(server.url)
    assert server.asks[0].prompt == "1: t2"
    assert len(server.asks) == 5


async def test_an_agent_rests_while_the_mean_is_under_the_floor(
    server: ScriptedServer, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("courier.gate.PATIENCE_S", 0.1)
    server.reply = lambda ask: Reply(piece_s=0.02)

    def capacity() -> dict[str, Any]:
        slow = len(server.asks) >= 4 and "rest" not in run.listener.names()
        return {"mean_active_tps": 5.0 if slow else 20.0, "can_admit": not slow, "reason": "slow"}

    server.capacity = capacity
    run = Run(state, small_workload(2, 8))
    assert await run.go(server.url)
    names = run.listener.names()
    assert names.count("rest") == 1
    resumed = [event["detail"] for event in run.listener.events if event["name"] == "spawn"]
    assert any(detail.startswith("rested: ") for detail in resumed)
    assert len(run.listener.steps) == 16


async def test_events_of_the_server_are_noted_if_they_concern_the_run(
    server: ScriptedServer, state: Path, workload: Workload
) -> None:
    server.reply = lambda ask: Reply(piece_s=0.05)
    server.events = [
        ("settle_begun", {"pool_id": 1000, "session_id": "run1/p0", "mean_tps": 12.345}),
        ("admission", {"session_id": "other/p0", "decision": "admit"}),
        ("session_finished", {"session_id": "run1/p0"}),
        (
            "admission",
            {"session_id": "run1/p0", "decision": "admit", "reason": "fits", "settling": False},
        ),
        ("kv_pressure", {"action": "session_idled", "cells_free": 3}),
    ]
    run = Run(state, workload)
    assert await run.go(server.url)
    told = [event for event in run.listener.events if event["source"] == "server"]
    assert {(event["name"], event["subject"], event["detail"]) for event in told} == {
        ("settle_begun", "p0", "mean_tps 12.35"),
        ("admission: admit", "p0", "fits"),
        ("kv_pressure", "", "action session_idled, cells_free 3"),
    }
