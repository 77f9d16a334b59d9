"""The gate and the tools, in graphs and agents against a scripted server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from opencoti_langgraph import (
    CapacityGate,
    ControlClient,
    OpencotiChatModel,
    PoolMiddleware,
    PoolSaturatedError,
    PoolState,
    pool_tools,
)
from tests.scripted_llama import ScriptedLlama
from tests.scripted_server import Reply, ScriptedServer

CAPACITY = "GET /polykv/pools/7000/capacity"
THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


class State(MessagesState, PoolState):
    pass


def verdict(can_admit: bool, **fields: Any) -> dict[str, Any]:
    return {
        "can_admit": can_admit,
        "reason": "ok" if can_admit else "projected mean tps below floor",
        "settling": False,
        "settle_remaining_ms": 0,
        "headroom_sessions": 5,
        "headroom_sessions_tps": 2,
        "mean_active_tps": 11.5,
        "compaction_pressure": 0.1,
        **fields,
    }


def note(text: str) -> Any:
    return lambda state: {"messages": [HumanMessage(text)]}


def gated(gate: CapacityGate) -> Any:
    builder = StateGraph(State).add_node("gate", gate, destinations=("work", "hold", END))
    builder.add_node("work", note("worked")).add_node("hold", note("held"))
    return builder.add_edge(START, "gate").compile(checkpointer=InMemorySaver())


def test_a_gate_with_room_goes_on_and_tells_the_state(
    server: ScriptedServer, client: ControlClient
) -> None:
    server.on(CAPACITY, verdict(True))
    graph = gated(CapacityGate(client, go="work", expected_tokens=100))
    state = graph.invoke({"messages": [], "pool_id": 7000}, THREAD)
    assert [message.text for message in state["messages"]] == ["worked"]
    keys = ("capacity_ok", "headroom_sessions", "mean_active_tps")
    assert [state[key] for key in keys] == [True, 2, 11.5]
    assert server.asked[0].params == {"expected_tokens": "100"}


def test_a_gate_waits(server: ScriptedServer, client: ControlClient) -> None:
    settling = verdict(False, settling=True, settle_remaining_ms=60)
    server.on(CAPACITY, settling, verdict(True), settling, verdict(True))
    graph = gated(CapacityGate(client, go="work", pool_id=7000))
    assert graph.invoke({"messages": []}, THREAD)["capacity_ok"]
    assert asyncio.run(graph.ainvoke({"messages": []}, THREAD))["capacity_ok"]
    assert len(server.asked) == 4
    server.on(CAPACITY, verdict(False))
    impatient = gated(CapacityGate(client, go="work", pool_id=7000, max_wait_s=0))
    with pytest.raises(PoolSaturatedError):
        impatient.invoke({"messages": []}, THREAD)


def test_a_gate_routes(server: ScriptedServer, client: ControlClient) -> None:
    server.on(CAPACITY, verdict(False))
    graph = gated(CapacityGate(client, go="work", hold="hold", on_saturation="route"))
    state = graph.invoke({"messages": [], "pool_id": 7000}, THREAD)
    assert [message.text for message in state["messages"]] == ["held"]
    assert state["capacity_ok"] is False


@pytest.mark.parametrize(
    ("answer", "room", "done"),
    [("proceed", False, ["worked"]), ("stop", False, []), ("stop", True, ["worked"])],
)
def test_a_gate_interrupts(
    server: ScriptedServer, client: ControlClient, answer: str, room: bool, done: list[str]
) -> None:
    server.on(CAPACITY, verdict(False), verdict(room))
    graph = gated(CapacityGate(client, go="work", on_saturation="interrupt"))
    stopped = graph.invoke({"messages": [], "pool_id": 7000}, THREAD)
    (stop,) = stopped["__interrupt__"]
    assert stop.value["reason"] == "projected mean tps below floor"
    state = graph.invoke(Command(resume=answer), THREAD)
    assert [message.text for message in state["messages"]] == done


def test_a_gate_needs_a_pool(client: ControlClient) -> None:
    with pytest.raises(ValueError, match="needs a pool"):
        gated(CapacityGate(client, go="work")).invoke({"messages": []}, THREAD)


def call(tool: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": "c"}])


def test_the_tools_ask_for_what_a_model_can_say(client: ControlClient) -> None:
    tools = {tool.name: tool for tool in pool_tools(client)}
    assert list(tools) == ["create_pool", "fork_pool", "pool_status", "session_tps", "capacity"]
    shown: Any = tools["fork_pool"].tool_call_schema
    assert set(shown.model_json_schema()["properties"]) == {"name", "text"}
    assert "runtime" not in tools["fork_pool"].description


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_tools_that_make_pools_switch_to_them(
    server: ScriptedServer, client: ControlClient, mode: str
) -> None:
    made = {"pool_id": 7000, "name": "n", "parent": -1, "prefix_len": 9}
    server.on("POST /polykv/pools", made)
    server.on("POST /polykv/pools/7000/fork", {**made, "pool_id": 7001, "parent": 7000})
    builder = StateGraph(State).add_node("tools", ToolNode(pool_tools(client)))
    graph = builder.add_edge(START, "tools").compile(checkpointer=InMemorySaver())

    def run(message: AIMessage) -> Any:
        if mode == "sync":
            return graph.invoke({"messages": [message]}, THREAD)
        return asyncio.run(graph.ainvoke({"messages": [message]}, THREAD))

    assert run(call("create_pool", name="n", text="Be brief."))["pool_id"] == 7000
    state = run(call("fork_pool", name="m", text="The task."))
    assert state["pool_id"] == 7001
    assert '"parent": 7000' in state["messages"][-1].text
    created, forked = server.asked
    assert created.body["messages"] == [{"role": "system", "content": "Be brief."}]
    assert forked.body["append_messages"] == [{"role": "user", "content": "The task."}]


def test_tools_that_only_look(server: ScriptedServer, client: ControlClient) -> None:
    pool = {"pool_id": 7000, "name": "n", "parent": -1, "prefix_len": 9, "residency": "resident"}
    server.on("GET /polykv/pools", {"pools": [{**pool, "sessions": [{}, {}]}]})
    session = {"session_id": "s", "tps_ewma": 4.0}
    idle = {"session_id": "i", "tps_ewma": None}
    server.on("GET /polykv/tps", {"mean_active_tps": 4.0, "sessions": [session, idle]})
    server.on(CAPACITY, verdict(False))
    builder = StateGraph(State).add_node("tools", ToolNode(pool_tools(client)))
    graph = builder.add_edge(START, "tools").compile()

    def run(message: AIMessage) -> Any:
        return graph.invoke({"messages": [message], "pool_id": 7000})

    assert '"sessions": 2' in run(call("pool_status"))["messages"][-1].text
    assert '{"s": 4.0}' in run(call("session_tps"))["messages"][-1].text
    state = run(call("capacity", expected_tokens=50))
    assert state["capacity_ok"] is False
    assert "below floor" in state["messages"][-1].text


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_agent_attaches_and_waits(
    server: ScriptedServer, client: ControlClient, mode: str
) -> None:
    llama = ScriptedLlama(server)
    server.on(CAPACITY, verdict(True))
    server.on("DELETE /polykv/sessions", {"ended": 1})
    saturated = Reply({"error": {"type": "pool_saturated", "retry_after_ms": 20}}, 429)
    replies = iter([saturated, saturated])
    server.routes["POST /v1/chat/completions"] = lambda asked: (
        next(replies, None) or llama.answer(asked)
    )
    model = OpencotiChatModel(base_url=server.url)
    agent: Any = create_agent(model, middleware=[PoolMiddleware(client, pool_id=7000)])
    question = {"messages": [HumanMessage("Hi")]}
    state = agent.invoke(question) if mode == "sync" else asyncio.run(agent.ainvoke(question))
    assert state["messages"][-1].text == "All is well here."
    assert state["headroom_sessions"] == 2
    assert "pool_id" not in state
    assert [body["pool_id"] for body in llama.bodies] == [7000] * 3
    (session,) = {body["session_id"] for body in llama.bodies}
    assert server.asked[-1].params == {"session_id": session}


def test_an_agent_gives_up_after_a_while(server: ScriptedServer, client: ControlClient) -> None:
    server.on(CAPACITY, verdict(True))
    saturated = Reply({"error": {"type": "pool_saturated", "retry_after_ms": 2000}}, 429)
    server.on("POST /v1/chat/completions", saturated)
    pool = PoolMiddleware(client, pool_id=7000, max_wait_s=1)
    agent: Any = create_agent(OpencotiChatModel(base_url=server.url), middleware=[pool])
    with pytest.raises(PoolSaturatedError):
        agent.invoke({"messages": [HumanMessage("Hi")]})


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_agent_within_an_agent_has_a_fork_of_its_own(
    server: ScriptedServer, client: ControlClient, mode: str
) -> None:
    llama = ScriptedLlama(server)
    server.on(CAPACITY, verdict(True))
    server.on("GET /polykv/pools/7001/capacity", verdict(True))
    server.on("POST /polykv/pools/7000/fork", {"pool_id": 7001})
    server.on("DELETE /polykv/sessions", {"ended": 1})
    server.on("DELETE /polykv/pools/7001", {"released": True})
    model = OpencotiChatModel(base_url=server.url)
    inner: Any = create_agent(model, middleware=[PoolMiddleware(client, fork=True)])

    def delegate(state: State) -> dict[str, Any]:
        task = {"messages": [HumanMessage("Task")], "parent_pool_id": state["pool_id"]}
        done = inner.invoke(task) if mode == "sync" else asyncio.run(inner.ainvoke(task))
        assert "pool_id" not in done
        return {"messages": [ToolMessage(done["messages"][-1].text, tool_call_id="x")]}

    builder = StateGraph(State).add_node("delegate", delegate).add_edge(START, "delegate")
    state = builder.compile().invoke({"messages": [], "pool_id": 7000})
    assert state["pool_id"] == 7000
    (body,) = llama.bodies
    assert body["pool_id"] == 7001
    fork = next(asked for asked in server.asked if asked.path.endswith("/fork"))
    assert fork.body == {"append_messages": [{"role": "user", "content": "Task"}], "unique": True}
    ended, released = [asked for asked in server.asked if asked.method == "DELETE"]
    assert ended.params["session_id"] == body["session_id"]
    assert released.params == {"subtree": "1", "force": "1"}
