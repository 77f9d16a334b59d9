"""Rewrites a conversation that has become long: a summary in a new pool, then the recent turns."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
)
from langchain_core.runnables import RunnableLambda
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime

from opencoti_langgraph.chat_model import OpencotiChatModel
from opencoti_langgraph.control import operations
from opencoti_langgraph.control.client import ControlClient
from opencoti_langgraph.control.steps import Request, Step
from opencoti_langgraph.control.wire import PoolRef
from opencoti_langgraph.middleware import PoolAgentState

ASK_SUMMARY = (
    "Summarize our conversation so far in a few sentences. Keep every name, number, decision and "
    "open question. Answer with the summary alone."
)
HEADLINE = "Summary of our conversation so far:\n"
ONE_OFF = "request-"  # how the server's own sessions of one request are called


@dataclass(frozen=True)
class AskModel:
    """A step: the model's answer to these messages, without a call of these tools."""

    messages: Sequence[AnyMessage]
    tools: Sequence[Any]
    pool_id: PoolRef | None
    session_id: str | None


Compaction: TypeAlias = Generator[Step | AskModel, Any, dict[str, Any] | None]


@dataclass(frozen=True)
class Compactor:
    """When and how a conversation is compacted.

    `max_tokens`: the length of the prompt from which it is, template included. `keep_messages`: how
    many of the last messages stay as they are, or a few more, so that no call is parted from its
    result. `system`: what the model calls begin with if the state's messages do not hold it; the
    pool that stays must end with it, or with the system messages that the state begins with.
    `tools`: those that the pool was made with. `pressure`: the server's compaction_pressure from
    which the conversation is compacted even if it is shorter, once it is half as long.
    """

    max_tokens: int
    keep_messages: int = 4
    system: SystemMessage | None = None
    tools: Sequence[Any] = ()
    pressure: float | None = None
    ask_summary: str = ASK_SUMMARY
    force_release: bool = False

    def compact(self, state: Mapping[str, Any]) -> Compaction:
        """The update of a state with `messages` and `pool_id`; None if nothing is to be done."""
        head, old, tail = split(state["messages"], self.keep_messages)
        pool = state.get("pool_id")
        if not old or not (yield from self._is_due(state["messages"], pool)):
            return None
        fixed = [self.system] if self.system else []
        question = HumanMessage(self.ask_summary)
        asked = [*fixed, *head, *old, question]
        answer = yield AskModel(asked, self.tools, pool, _session_of(old))
        if not answer.text.strip():
            return None  # nothing is better than a summary that says nothing
        compacted = [HumanMessage(HEADLINE + answer.text), *tail]
        update: dict[str, Any] = {
            "messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *head, *compacted]
        }
        if pool is None:
            return update
        stable = state.get("stable_pool_id") or pool
        done = yield from operations.compact_by_refork(
            pool,
            ancestor=stable,
            compacted_messages=compacted,
            tools=self.tools or None,
            force=self.force_release,
        )
        return {**update, "pool_id": done["pool"]["pool_id"], "stable_pool_id": stable}

    def _is_due(self, messages: Sequence[AnyMessage], pool: Any) -> Generator[Step, Any, bool]:
        fixed = [self.system] if self.system else []
        n_tokens = yield from operations.count_tokens([*fixed, *messages], tools=self.tools)
        if n_tokens >= self.max_tokens:
            return True
        if self.pressure is None or pool is None or n_tokens < self.max_tokens / 2:
            return False
        verdict = yield from operations.capacity(pool)
        return verdict["compaction_pressure"] >= self.pressure


@dataclass(frozen=True)
class _Compacting:
    """A compactor with what it asks."""

    client: ControlClient
    model: OpencotiChatModel
    compactor: Compactor

    def run(self, state: Mapping[str, Any]) -> dict[str, Any]:
        def perform(step: Request | AskModel) -> Any:
            if isinstance(step, Request):
                return self.client.send(step)
            return self.model.invoke(list(step.messages), **_options(step))

        return self.client.run(self.compactor.compact(state), perform) or {}

    async def arun(self, state: Mapping[str, Any]) -> dict[str, Any]:
        async def perform(step: Request | AskModel) -> Any:
            if isinstance(step, Request):
                return await self.client.asend(step)
            return await self.model.ainvoke(list(step.messages), **_options(step))

        return await self.client.arun(self.compactor.compact(state), perform) or {}


def _options(step: AskModel) -> dict[str, Any]:
    # A summary makes room, so it does not wait for any.
    options: dict[str, Any] = {
        "pool_id": step.pool_id,
        "session_id": step.session_id,
        "overcommit": True,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if step.session_id is None:
        given["session_end"] = True
    if step.tools:  # they are part of the prompt that is cached
        given |= {"tools": operations.wire_tools(step.tools), "tool_choice": "none"}
    return given


class CompactionNode(RunnableLambda[Any, dict[str, Any]]):
    """A node that compacts the state's `messages` and swaps its `pool_id`, or does nothing.

    graph.add_node("compact", CompactionNode(client, model, Compactor(max_tokens=6000)))
    """

    def __init__(
        self, client: ControlClient, model: OpencotiChatModel, compactor: Compactor
    ) -> None:
        compacting = _Compacting(client, model, compactor)
        super().__init__(compacting.run, compacting.arun, name="compaction")


class CompactionMiddleware(AgentMiddleware[PoolAgentState, Any, Any]):
    """Does for create_agent what CompactionNode does in a graph."""

    state_schema = PoolAgentState
    tools = ()

    def __init__(
        self, client: ControlClient, model: OpencotiChatModel, compactor: Compactor
    ) -> None:
        super().__init__()
        self._compacting = _Compacting(client, model, compactor)

    def before_model(self, state: PoolAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        return self._compacting.run(state)

    async def abefore_model(self, state: PoolAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        return await self._compacting.arun(state)


def split(
    messages: Sequence[AnyMessage], keep: int
) -> tuple[list[AnyMessage], list[AnyMessage], list[AnyMessage]]:
    """The system messages at the beginning, what is to be summarized, and what stays.

    What stays begins with a user's message if it can, and never with a tool's result.
    """
    n_head = 0
    while n_head < len(messages) and isinstance(messages[n_head], SystemMessage):
        n_head += 1
    cut = _last(messages, n_head, len(messages) - keep, HumanMessage)
    if cut is None:
        cut = _last(messages, n_head, len(messages) - keep, HumanMessage | AIMessage)
    if cut is None:
        cut = n_head
    return list(messages[:n_head]), list(messages[n_head:cut]), list(messages[cut:])


def _last(messages: Sequence[AnyMessage], first: int, end: int, kind: Any) -> int | None:
    """The last position of a message of `kind` in (first, end], None if there is none."""
    places = range(min(end, len(messages) - 1), first, -1)
    return next((place for place in places if isinstance(messages[place], kind)), None)


def _session_of(messages: Sequence[AnyMessage]) -> str | None:
    """The session that the conversation was in; its cells hold most of what is to be summarized."""
    for message in reversed(messages):
        if isinstance(message, AIMessage) and (name := message.response_metadata.get("session_id")):
            return None if str(name).startswith(ONE_OFF) else str(name)
    return None
