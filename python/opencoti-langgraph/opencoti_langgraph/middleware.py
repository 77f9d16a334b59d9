"""Pools for create_agent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NotRequired
from uuid import uuid4

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain.agents.middleware.types import PrivateStateAttr
from langgraph.config import get_config
from langgraph.runtime import Runtime

from opencoti_langgraph.control import operations
from opencoti_langgraph.control.client import ControlClient
from opencoti_langgraph.control.errors import PoolNotFoundError, PoolSaturatedError
from opencoti_langgraph.control.patience import Patience
from opencoti_langgraph.control.steps import Steps
from opencoti_langgraph.control.wire import PoolRef
from opencoti_langgraph.state import CapacityState, capacity_update, last


class PoolAgentState(AgentState[Any], CapacityState):
    """An agent's state. What is private neither comes from the agent's caller nor goes back to it,
    so that an agent within an agent has a pool of its own.
    """

    parent_pool_id: NotRequired[Annotated[PoolRef | None, last]]
    """The pool that the agent starts from; its caller may say which."""
    pool_id: NotRequired[Annotated[PoolRef | None, last, PrivateStateAttr]]
    stable_pool_id: NotRequired[Annotated[PoolRef | None, last, PrivateStateAttr]]
    session_id: NotRequired[Annotated[str | None, last, PrivateStateAttr]]


class PoolMiddleware(AgentMiddleware[PoolAgentState, Any, Any]):
    """Lets an agent's model calls attach to a pool, as one session, and wait where it is saturated.

    The agent starts from its caller's `parent_pool_id`, else from `pool_id`. With `fork` each run
    has a fork of it that holds the task, and gives it back with its session at the end. Without,
    the session lasts as long as the thread; without a thread, as long as the run. A saturated pool
    is waited for as its server says, for at most `max_wait_s` seconds; then PoolSaturatedError is
    raised.
    """

    state_schema = PoolAgentState
    tools = ()

    def __init__(
        self,
        client: ControlClient,
        *,
        pool_id: PoolRef | None = None,
        fork: bool = False,
        max_wait_s: float = 60.0,
    ) -> None:
        super().__init__()
        self.client = client
        self.pool_id = pool_id
        self.fork = fork
        self.max_wait_s = max_wait_s

    def before_agent(self, state: PoolAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        return self.client.run(self._begin(state))

    async def abefore_agent(self, state: PoolAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        return await self.client.arun(self._begin(state))

    def before_model(self, state: PoolAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        return self.client.run(_look(state))

    async def abefore_model(self, state: PoolAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        return await self.client.arun(_look(state))

    def after_agent(self, state: PoolAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        return self.client.run(self._end(state))

    async def aafter_agent(self, state: PoolAgentState, runtime: Runtime[Any]) -> dict[str, Any]:
        return await self.client.arun(self._end(state))

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        attached, patience = _attached(request), Patience(saturated_s=self.max_wait_s)
        while True:
            try:
                return handler(attached)
            except PoolSaturatedError as error:
                time.sleep(patience.pause_after(error))

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        attached, patience = _attached(request), Patience(saturated_s=self.max_wait_s)
        while True:
            try:
                return await handler(attached)
            except PoolSaturatedError as error:
                await asyncio.sleep(patience.pause_after(error))

    def _begin(self, state: PoolAgentState) -> Steps[dict[str, Any]]:
        base = state.get("parent_pool_id") or self.pool_id
        pool = state.get("pool_id") or base
        session = state.get("session_id")
        if session is None and (self.fork or not get_config()["metadata"].get("thread_id")):
            session = uuid4().hex
        if self.fork and base is not None:
            forked = yield from operations.fork_pool(
                base, append_messages=state["messages"], unique=True
            )
            pool = forked["pool_id"]
        return {"parent_pool_id": base, "pool_id": pool, "session_id": session}

    def _end(self, state: PoolAgentState) -> Steps[dict[str, Any]]:
        if session := state.get("session_id"):
            yield from operations.end_session(session)
        if not self.fork:
            return {"session_id": None}
        # After a compaction the fork is the one that stayed, with the current pool below it.
        own = state.get("stable_pool_id") or state.get("pool_id")
        if own is not None and own != state.get("parent_pool_id"):
            yield from operations.release_pool(own, subtree=True, force=True)
        return {"pool_id": None, "stable_pool_id": None, "session_id": None}


def _look(state: PoolAgentState) -> Steps[dict[str, Any]]:
    pool = state.get("pool_id")
    if pool is None:
        return {}
    try:
        verdict = yield from operations.capacity(pool, session_id=state.get("session_id"))
    except PoolNotFoundError:
        return {}  # the model still answers without it
    return capacity_update(verdict)


def _attached(request: ModelRequest[Any]) -> ModelRequest[Any]:
    place = {name: request.state.get(name) for name in ("pool_id", "session_id")}
    given = {name: value for name, value in place.items() if value is not None}
    return request.override(model_settings={**request.model_settings, **given})
