"""Conversations that have become long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from opencoti_langgraph import (
    CompactionMiddleware,
    CompactionNode,
    Compactor,
    ControlClient,
    OpencotiChatModel,
    PoolMiddleware,
    PoolState,
)
from opencoti_langgraph.compaction import split
from tests.scripted_llama import ScriptedLlama
from tests.scripted_server import ScriptedServer

COUNT = "POST /v1/chat/completions/input_tokens"


class State(MessagesState, PoolState):
    pass


SYSTEM = SystemMessage("Be brief.")
CALL = AIMessage("", tool_calls=[{"name": "add", "args": {}, "id": "c"}])
RESULT = ToolMessage("3", tool_call_id="c")


def answer(text: str, session: str = "t/chat") -> AIMessage:
    return AIMessage(text, response_metadata={"session_id": session})


@pytest.mark.parametrize(
    ("messages", "keep", "sizes"),
    [
        ([SYSTEM, HumanMessage("a"), answer("b"), HumanMessage("c"), answer("d")], 2, (1, 2, 2)),
        ([SYSTEM, HumanMessage("a"), answer("b"), HumanMessage("c"), answer("d")], 1, (1, 2, 2)),
        ([SYSTEM, HumanMessage("a"), answer("b")], 4, (1, 0, 2)),
        ([HumanMessage("a"), CALL, RESULT, CALL, RESULT, CALL, RESULT], 3, (0, 3, 4)),
        ([HumanMessage("a"), CALL, RESULT], 1, (0, 1, 2)),
        ([SYSTEM], 1, (1, 0, 0)),
        ([], 1, (0, 0, 0)),
    ],
    ids=lambda value: "" if isinstance(value, list) else str(value),
)
def test_what_is_summarized_and_what_stays(
    messages: list[AnyMessage], keep: int, sizes: tuple[int, int, int]
) -> None:
    parts = split(messages, keep)
    assert tuple(len(part) for part in parts) == sizes
    assert [*parts[0], *parts[1], *parts[2]] == messages


@pytest.fixture
def llama(server: ScriptedServer) -> ScriptedLlama:
    server.on(COUNT, {"input_tokens": 900})
    server.on("GET /polykv/pools/7000", {"pool_id": 7000, "parent": -1})
    server.on("GET /polykv/pools/7001", {"pool_id": 7001, "parent": 7000})
    new = {"parent": 7000, "created": True}
    server.on("POST /polykv/pools/7000/fork", {**new, "pool_id": 7001}, {**new, "pool_id": 7002})
    server.on("DELETE /polykv/pools/7001", {"released": False})
    return ScriptedLlama(server)


TALK = [SYSTEM, HumanMessage("a"), answer("b"), HumanMessage("c"), answer("d")]


def compacting(llama: ScriptedLlama, client: ControlClient, compactor: Compactor) -> Any:
    model = OpencotiChatModel(base_url=llama.server.url)
    node = CompactionNode(client, model, compactor)
    builder = StateGraph(State).add_node("compact", node).add_edge(START, "compact")
    return builder.compile(checkpointer=InMemorySaver())


def texts(state: Any) -> list[str]:
    return [message.text for message in state["messages"]]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_node_swaps_the_pool_and_later_releases_its_own(
    llama: ScriptedLlama, client: ControlClient, mode: str
) -> None:
    graph = compacting(llama, client, Compactor(max_tokens=800, keep_messages=2))
    thread = {"configurable": {"thread_id": "t"}}

    def run(state: dict[str, Any]) -> Any:
        if mode == "sync":
            return graph.invoke(state, thread)
        return asyncio.run(graph.ainvoke(state, thread))

    llama.says = [{"content": "They said a and b."}, {"content": "They said it all."}]
    first = run({"messages": TALK, "pool_id": 7000})
    summary = "Summary of our conversation so far:\nThey said a and b."
    assert texts(first) == ["Be brief.", summary, "c", "d"]
    assert (first["pool_id"], first["stable_pool_id"]) == (7001, 7000)
    asked = llama.bodies[0]
    assert (asked["pool_id"], asked["session_id"], asked["overcommit"]) == (7000, "t/chat", True)
    assert [message["content"] for message in asked["messages"][:3]] == ["Be brief.", "a", "b"]
    fork = next(asked for asked in llama.server.asked if asked.path.endswith("/fork"))
    contents = [message["content"] for message in fork.body["append_messages"]]
    assert contents == [summary, "c", "d"]
    assert not any(asked.method == "DELETE" for asked in llama.server.asked)

    second = run({"messages": [HumanMessage("e"), answer("f")]})
    assert second["pool_id"] == 7002
    assert texts(second)[2:] == ["e", "f"]
    assert llama.server.asked[-1].path == "/polykv/pools/7001"
    assert llama.server.asked[-1].method == "DELETE"


def test_a_pool_that_the_conversation_began_with_is_never_released(
    llama: ScriptedLlama, client: ControlClient
) -> None:
    llama.server.on("POST /polykv/pools/7001/fork", {"pool_id": 7003, "parent": 7001})
    graph = compacting(llama, client, Compactor(max_tokens=800, keep_messages=2))
    thread = {"configurable": {"thread_id": "t"}}
    state = graph.invoke({"messages": TALK, "pool_id": 7001}, thread)
    assert (state["pool_id"], state["stable_pool_id"]) == (7003, 7001)
    assert not any(asked.method == "DELETE" for asked in llama.server.asked)


def test_a_short_conversation_stays(llama: ScriptedLlama, client: ControlClient) -> None:
    graph = compacting(llama, client, Compactor(max_tokens=901))
    thread = {"configurable": {"thread_id": "t"}}
    state = graph.invoke({"messages": TALK, "pool_id": 7000}, thread)
    assert texts(state) == texts({"messages": TALK})
    assert state["pool_id"] == 7000
    assert not llama.bodies


def test_the_tools_of_the_prompt_are_those_of_the_pool(
    llama: ScriptedLlama, client: ControlClient
) -> None:
    def add(a: int) -> int:
        """Adds."""
        return a

    graph = compacting(llama, client, Compactor(max_tokens=800, keep_messages=2, tools=[add]))
    graph.invoke({"messages": TALK, "pool_id": 7000}, {"configurable": {"thread_id": "t"}})
    (asked,) = llama.bodies
    assert asked["tool_choice"] == "none"
    fork = next(asked for asked in llama.server.asked if asked.path.endswith("/fork"))
    assert asked["tools"] == fork.body["tools"]


def test_a_summary_that_says_nothing_changes_nothing(
    llama: ScriptedLlama, client: ControlClient
) -> None:
    llama.says = [{"content": " "}]
    graph = compacting(llama, client, Compactor(max_tokens=800, keep_messages=2))
    thread = {"configurable": {"thread_id": "t"}}
    state = graph.invoke({"messages": TALK, "pool_id": 7000}, thread)
    assert texts(state) == texts({"messages": TALK})
    assert state["pool_id"] == 7000


@pytest.mark.parametrize(("pressure", "compacted"), [(0.4, True), (0.6, False)])
def test_pressure_on_the_server_compacts_earlier(
    llama: ScriptedLlama, client: ControlClient, pressure: float, compacted: bool
) -> None:
    llama.server.on("GET /polykv/pools/7000/capacity", {"compaction_pressure": 0.5})
    compactor = Compactor(max_tokens=1000, keep_messages=2, pressure=pressure)
    graph = compacting(llama, client, compactor)
    thread = {"configurable": {"thread_id": "t"}}
    state = graph.invoke({"messages": TALK, "pool_id": 7000}, thread)
    assert (state["pool_id"] == 7001) == compacted


def test_without_a_pool_the_messages_alone_are_compacted(
    llama: ScriptedLlama, client: ControlClient
) -> None:
    graph = compacting(llama, client, Compactor(max_tokens=800, keep_messages=2))
    talk = [SYSTEM, HumanMessage("a"), answer("b", "request-7-1"), HumanMessage("c"), answer("d")]
    state = graph.invoke({"messages": talk}, {"configurable": {"thread_id": "t"}})
    assert len(state["messages"]) == 4
    assert "pool_id" not in state
    assert llama.bodies[0]["session_id"] != "request-7-1"


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_an_agent_compacts_before_it_asks_its_model(
    llama: ScriptedLlama, client: ControlClient, mode: str
) -> None:
    capacity = {"can_admit": True, "mean_active_tps": None}
    rooms = {"headroom_sessions": 1, "headroom_sessions_tps": None}
    for pool in (7000, 7001):
        llama.server.on(f"GET /polykv/pools/{pool}/capacity", {**capacity, **rooms})
    llama.server.on("DELETE /polykv/sessions", {"ended": 1})
    model = OpencotiChatModel(base_url=llama.server.url)
    system = SystemMessage("You are a helper.")
    compactor = Compactor(max_tokens=800, keep_messages=1, system=system)
    agent: Any = create_agent(
        model,
        system_prompt=system,
        middleware=[
            PoolMiddleware(client, pool_id=7000),
            CompactionMiddleware(client, model, compactor),
        ],
    )
    talk = {"messages": [HumanMessage("a"), answer("b"), HumanMessage("c")]}
    state = agent.invoke(talk) if mode == "sync" else asyncio.run(agent.ainvoke(talk))
    assert len(state["messages"]) == 3
    summary, answered = llama.bodies
    assert summary["messages"][0]["content"] == "You are a helper."
    assert (summary["pool_id"], answered["pool_id"]) == (7000, 7001)
    contents = [message["content"] for message in answered["messages"]]
    assert contents[0] == "You are a helper."
    assert contents[1].startswith("Summary of our conversation")
    assert contents[2] == "c"


def test_an_agent_with_a_fork_releases_all_of_it(
    llama: ScriptedLlama, client: ControlClient
) -> None:
    verdict = {"can_admit": True, "mean_active_tps": None}
    rooms = {"headroom_sessions": 1, "headroom_sessions_tps": None}
    llama.server.on("POST /polykv/pools/7001/fork", {"pool_id": 7003, "parent": 7001})
    llama.server.on("DELETE /polykv/sessions", {"ended": 1})
    for pool in (7001, 7003):
        llama.server.on(f"GET /polykv/pools/{pool}/capacity", {**verdict, **rooms})
    model = OpencotiChatModel(base_url=llama.server.url)
    compactor = Compactor(max_tokens=800, keep_messages=1)
    pool_middleware = PoolMiddleware(client, pool_id=7000, fork=True)
    compaction = CompactionMiddleware(client, model, compactor)
    agent: Any = create_agent(model, middleware=[pool_middleware, compaction])
    agent.invoke({"messages": [HumanMessage("a"), answer("b"), HumanMessage("c")]})
    assert llama.bodies[-1]["pool_id"] == 7003
    released = [asked.path for asked in llama.server.asked if asked.method == "DELETE"]
    assert released == ["/polykv/sessions", "/polykv/pools/7001"]
    assert llama.server.asked[-1].params == {"subtree": "1", "force": "1"}
