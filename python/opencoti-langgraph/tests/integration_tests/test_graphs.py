"""Graphs against a real server: gates, fan-outs, forks, compaction, cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from examples import fan_out, long_chat, nested_fan_out
from opencoti_langgraph import (
    CapacityGate,
    ControlClient,
    OpencotiChatModel,
    PoolMiddleware,
    PoolSaturatedError,
    PoolState,
)
from opencoti_langgraph.control import SessionEndedError

UNREACHABLE = 100_000.0  # tokens per second


class State(MessagesState, PoolState):
    pass


def eventually(check: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 60
    while not (result := check()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)
    return result


def small(client: ControlClient, **fields: Any) -> OpencotiChatModel:
    return OpencotiChatModel(base_url=client.base_url, temperature=0, **fields)


def test_eight_readers_under_a_gate_share_one_pool(client: ControlClient) -> None:
    pool = client.create_pool(messages=fan_out.SHARED)
    client.set_admission(pool["pool_id"], target_tps_per_session=0.01, mode="enforced")
    model = small(client, max_tokens=8, session_end=True, saturation_wait=60)
    graph = fan_out.build(client, model)
    done = graph.invoke({"todo": fan_out.QUESTIONS, "answers": [], "pool_id": pool["pool_id"]})
    assert sorted(entry["question"] for entry in done["answers"]) == sorted(fan_out.QUESTIONS)
    assert all(entry["answer"] for entry in done["answers"])
    assert all(entry["cache_n"] >= pool["prefix_len"] for entry in done["answers"])
    assert done["capacity_ok"]
    assert client.pool(pool["pool_id"])["hits"] == 8
    assert client.sessions() == []


@contextmanager
def saturated(client: ControlClient, pool_id: int) -> Iterator[str]:
    """A session that decodes on and on below the floor of its pool."""
    client.set_admission(
        pool_id, target_tps_per_session=UNREACHABLE, mode="enforced", settle_tokens=4
    )
    model = small(client, pool_id=pool_id, session_id="first", extra_body={"ignore_eos": True})

    def decode() -> None:
        with suppress(SessionEndedError):
            list(model.stream([*fan_out.SHARED, HumanMessage("Tell me all.")], max_tokens=8000))

    thread = threading.Thread(target=decode)
    thread.start()
    try:
        full = "projected mean tps below floor"
        eventually(lambda: client.capacity(pool_id)["reason"] == full, "the pool is saturated")
        yield "first"
    finally:
        client.end_session("first")
        thread.join()


def test_a_saturated_pool_is_an_error_then_a_wait_then_an_answer(client: ControlClient) -> None:
    pool = client.create_pool(messages=fan_out.SHARED)["pool_id"]
    model = small(client, max_tokens=4)
    waits: list[float | None] = []

    def work(state: State) -> Command[str] | dict[str, Any]:
        messages = [*fan_out.SHARED, *state["messages"]]
        try:
            answer = model.invoke(messages, pool_id=state["pool_id"])
        except PoolSaturatedError as error:
            waits.append(error.retry_after)
            threading.Timer(0.5, client.end_session, ["first"]).start()
            return Command(goto="gate")
        return {"messages": [answer]}

    builder = StateGraph(State).add_node("work", work, destinations=("gate",))
    builder.add_node("gate", CapacityGate(client, go="work"), destinations=("work",))
    graph = builder.add_edge(START, "work").compile()
    with saturated(client, pool):
        state = graph.invoke({"messages": [HumanMessage("Who?")], "pool_id": pool})
    assert len(waits) == 1
    assert waits[0] is not None
    assert 1 <= waits[0] <= 60
    assert state["messages"][-1].text
    assert state["capacity_ok"]


def test_a_model_waits_itself_if_it_may(client: ControlClient) -> None:
    pool = client.create_pool(messages=fan_out.SHARED)["pool_id"]
    messages = [*fan_out.SHARED, HumanMessage("Who?")]
    patient = small(client, max_tokens=4, pool_id=pool, saturation_wait=60)
    with saturated(client, pool) as first:
        with pytest.raises(PoolSaturatedError):
            small(client, max_tokens=4, pool_id=pool).invoke(messages)
        known = small(client, max_tokens=4, pool_id=pool, overcommit=True)
        assert known.invoke(messages).text
        threading.Timer(0.5, client.end_session, [first]).start()
        assert patient.invoke(messages).text


def test_forks_of_teams_stay_within_them(client: ControlClient) -> None:
    pool = client.create_pool(messages=nested_fan_out.SHARED)
    model = small(client, max_tokens=8, session_end=True)
    done = nested_fan_out.build(client, model, pool["pool_id"]).invoke({"answers": []})
    assert set(done) == {"answers"}
    assert len(done["answers"]) == 6
    forks = {answer["topic"]: answer["pool_id"] for answer in done["answers"]}
    assert len(set(forks.values())) == 2
    assert pool["pool_id"] not in forks.values()
    assert all(answer["cache_n"] > pool["prefix_len"] for answer in done["answers"])
    assert [left["pool_id"] for left in client.pools()["pools"]] == [pool["pool_id"]]
    assert client.sessions() == []


def test_an_agent_within_a_graph_forks_and_does_not_leak(client: ControlClient) -> None:
    system = SystemMessage(fan_out.SHARED[0].text)
    pool = client.create_pool(messages=[system])
    seen: list[Any] = []
    model = small(client, max_tokens=6)
    agent: Any = create_agent(
        model, system_prompt=system, middleware=[PoolMiddleware(client, fork=True)]
    )

    async def delegate(state: State) -> dict[str, Any]:
        task = {"messages": [HumanMessage("Who keeps it?")], "parent_pool_id": state["pool_id"]}
        results = await asyncio.gather(agent.ainvoke(task), agent.ainvoke(task))
        seen.extend(results)
        return {"messages": [results[0]["messages"][-1]]}

    builder = StateGraph(State).add_node("delegate", delegate).add_edge(START, "delegate")
    whole = builder.compile()
    state = asyncio.run(whole.ainvoke({"messages": [], "pool_id": pool["pool_id"]}))
    assert state["pool_id"] == pool["pool_id"]
    told = [result["messages"][-1].response_metadata for result in seen]
    forks = {entry["pool_id"] for entry in told}
    assert len(forks) == 2
    assert pool["pool_id"] not in forks
    assert all(entry["cache_n"] >= pool["prefix_len"] for entry in told)
    assert not any("pool_id" in result for result in seen)
    assert [left["pool_id"] for left in client.pools()["pools"]] == [pool["pool_id"]]
    assert client.sessions() == []


def test_a_long_chat_is_compacted_and_goes_on(client: ControlClient) -> None:
    root = client.create_pool(messages=[long_chat.SYSTEM])
    model = small(client, max_tokens=32)
    graph = long_chat.build(client, model, max_tokens=240)
    thread = {"configurable": {"thread_id": "anna"}}
    new: dict[str, Any] = {"messages": [long_chat.SYSTEM], "pool_id": root["pool_id"]}
    pools, lengths, sessions = [], [], set()
    for turn in long_chat.TURNS:
        new.setdefault("messages", []).append(HumanMessage(turn))
        state = graph.invoke(new, thread)
        new = {}
        answer = state["messages"][-1]
        assert answer.text
        pools.append(state["pool_id"])
        lengths.append(answer.usage_metadata["input_tokens"])
        sessions.add(answer.response_metadata["session_id"])
        assert answer.response_metadata["pool_id"] == state["pool_id"]
        assert answer.response_metadata["cache_n"] >= root["prefix_len"]
    assert len(sessions) == 1
    swaps = [turn for turn in range(1, len(pools)) if pools[turn] != pools[turn - 1]]
    assert len(swaps) >= 2
    assert all(lengths[turn] < lengths[turn - 1] for turn in swaps)
    tree = client.pool(root["pool_id"])
    alive = [pool["pool_id"] for pool in tree["pools"] if pool["refs"] > 0]
    assert alive == [root["pool_id"], pools[-1]]
    moved = client.session(next(iter(sessions)))
    assert moved["pool_id"] == pools[-1]
    fork = client.pool(pools[-1])
    assert state["messages"][-1].response_metadata["cache_n"] >= fork["shared_len"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_cancelled_call_ends_on_the_server(client: ControlClient, streamed: bool) -> None:
    model = small(client, max_tokens=8000, session_id="long", extra_body={"ignore_eos": True})

    async def read() -> None:
        if streamed:
            async for _ in model.astream("Tell me all."):
                pass
        else:
            await model.ainvoke("Tell me all.")

    def state() -> str:
        return next((entry["state"] for entry in client.sessions()), "none")

    async def run() -> None:
        task = asyncio.create_task(read())
        await asyncio.to_thread(eventually, lambda: state() == "decoding", "it decodes")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    eventually(lambda: state() in ("idle", "none"), "the server has stopped")


def test_a_thread_is_a_session_that_is_never_gated_again(client: ControlClient) -> None:
    pool = client.create_pool(messages=fan_out.SHARED)["pool_id"]
    model = small(client, max_tokens=4, pool_id=pool)

    def chat(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([*fan_out.SHARED, *state["messages"]])]}

    builder = StateGraph(MessagesState).add_node("chat", chat).add_edge(START, "chat")
    graph = builder.compile(checkpointer=InMemorySaver())
    thread: RunnableConfig = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [HumanMessage("Who?")]}, thread)
    assert [session["session_id"] for session in client.sessions()] == ["t/chat"]
    with saturated(client, pool):
        state = graph.invoke({"messages": [HumanMessage("When?")]}, thread)
    assert state["messages"][-1].response_metadata["session_id"] == "t/chat"
