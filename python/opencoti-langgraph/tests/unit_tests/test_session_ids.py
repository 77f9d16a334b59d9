"""Which calls of a graph's run belong to one session."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Annotated, Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

from opencoti_langgraph import OpencotiChatModel
from opencoti_langgraph.session_ids import session_id_of
from tests.scripted_llama import ScriptedLlama
from tests.scripted_server import ScriptedServer


class State(TypedDict):
    turns: Annotated[list[str], operator.add]


@pytest.fixture
def llama(server: ScriptedServer) -> ScriptedLlama:
    return ScriptedLlama(server)


def ask(llama: ScriptedLlama) -> Any:
    model = OpencotiChatModel(base_url=llama.server.url)

    def node(state: State) -> dict[str, Any]:
        model.invoke("Hi")
        return {"turns": ["x"]}

    return node


def sessions(llama: ScriptedLlama) -> list[str | None]:
    return [body.get("session_id") for body in llama.bodies]


def config(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}}


def test_a_loop_of_a_thread_is_one_session(llama: ScriptedLlama) -> None:
    builder = StateGraph(State).add_node("think", ask(llama)).add_edge(START, "think")
    builder.add_conditional_edges(
        "think", lambda state: "think" if len(state["turns"]) % 3 else END, ["think", END]
    )
    graph = builder.compile(checkpointer=InMemorySaver())
    for thread in ("a", "b", "a"):
        graph.invoke({"turns": []}, config(thread))
    assert sessions(llama) == ["a/think"] * 3 + ["b/think"] * 3 + ["a/think"] * 3


def test_what_runs_at_the_same_time_has_sessions_of_its_own(llama: ScriptedLlama) -> None:
    nested = StateGraph(State).add_node("inner", ask(llama)).add_node("next", ask(llama))
    nested.add_edge(START, "inner").add_edge("inner", "next")
    builder = StateGraph(State).add_node("read", ask(llama)).add_node("agent", nested.compile())
    sends = [Send("read", {"turns": []})] * 4 + [Send("agent", {"turns": []})] * 2
    builder.add_conditional_edges(START, lambda _: sends, ["read", "agent"])
    builder.compile().invoke({"turns": []}, config("t"))
    names = Counter(str(name) for name in sessions(llama))
    assert set(names.values()) == {1}
    assert sum(name.startswith("t/read:") for name in names) == 4
    assert sum(name.startswith("t/agent:") and name.endswith("/inner") for name in names) == 2


def test_without_a_thread_the_server_makes_the_session(llama: ScriptedLlama) -> None:
    graph = StateGraph(State).add_node("think", ask(llama)).add_edge(START, "think").compile()
    graph.invoke({"turns": []})
    assert sessions(llama) == [None]


def test_calls_of_one_node_at_the_same_time_do_not_wait_for_each_other(
    llama: ScriptedLlama,
) -> None:
    model = OpencotiChatModel(base_url=llama.server.url)

    def node(state: State) -> dict[str, Any]:
        first, second = model.stream("Hi"), model.stream("Hi")
        next(first)
        next(second)
        list(first)
        model.invoke("Hi")
        return {"turns": ["x"]}

    graph = StateGraph(State).add_node("think", node).add_edge(START, "think").compile()
    graph.invoke({"turns": []}, config("t"))
    assert sessions(llama) == ["t/think", None, "t/think"]


def test_a_given_session_stays(llama: ScriptedLlama) -> None:
    model = OpencotiChatModel(base_url=llama.server.url, session_id="mine")
    model.invoke("Hi", config=config("t"))
    model.invoke("Hi", config=config("t"), session_id="other")
    assert sessions(llama) == ["mine", "other"]


@pytest.mark.parametrize("thread", ["x" * 300, "line\nbreak", "é" * 200])
def test_what_no_session_may_be_called_is_hashed(thread: str) -> None:
    name = session_id_of({"thread_id": thread})
    assert name is not None
    assert len(name) == 64
    assert name != session_id_of({"thread_id": thread + "y"})
