"""Tools by which an agent manages its own pools."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command

from opencoti_langgraph.control import operations
from opencoti_langgraph.control.client import ControlClient
from opencoti_langgraph.control.steps import Steps
from opencoti_langgraph.control.wire import Pool, PoolCreated, PoolRef
from opencoti_langgraph.state import capacity_update

Runtime = ToolRuntime[Any, Any]


def create_pool(name: str, text: str, runtime: Runtime) -> Steps[Command[str]]:
    """Makes a pool of instructions or of a document that several agents will share.

    Chats that begin with a system message of this text need not compute it again.
    """
    message = {"role": "system", "content": text}
    created = yield from operations.create_pool(messages=[message], name=name)
    return _switched(created, runtime)


def fork_pool(name: str, text: str, runtime: Runtime) -> Steps[Command[str]]:
    """Makes a pool that begins as the current one and goes on with a user's message of this text,
    for agents that share more than the current pool holds.
    """
    message = {"role": "user", "content": text}
    parent = _current(runtime)
    created = yield from operations.fork_pool(parent, append_messages=[message], name=name)
    return _switched(created, runtime)


def pool_status(runtime: Runtime) -> Steps[str]:
    """Lists all pools with their lengths, sizes and sessions."""
    tree = yield from operations.pools()
    current = runtime.state.get("pool_id")
    pools = [_brief(pool) for pool in tree["pools"]]
    return json.dumps({"current": current, "pools": pools})


def session_tps(runtime: Runtime) -> Steps[str]:
    """Tells how many tokens per second the running sessions get now."""
    rates = yield from operations.tps()
    active = {
        session["session_id"]: session["tps_ewma"]
        for session in rates["sessions"]
        if session["tps_ewma"] is not None
    }
    return json.dumps({"mean_active_tps": rates["mean_active_tps"], "sessions": active})


def capacity(expected_tokens: int, runtime: Runtime) -> Steps[Command[str]]:
    """Tells whether one more agent with so many tokens of its own would be admitted now."""
    verdict = yield from operations.capacity(_current(runtime), expected_tokens=expected_tokens)
    update = capacity_update(verdict)
    return _told({**update, "reason": verdict["reason"]}, runtime, update)


def pool_tools(client: ControlClient) -> list[BaseTool]:
    """create_pool, fork_pool, pool_status, session_tps and capacity, for ToolNode and create_agent.

    Those that make a pool put it into the state's `pool_id`, which is the current one.
    """
    rules = (create_pool, fork_pool, pool_status, session_tps, capacity)
    return [_tool(client, rule) for rule in rules]


def _tool(client: ControlClient, rule: Callable[..., Steps[Any]]) -> BaseTool:
    @functools.wraps(rule)
    def call(*args: Any, **kwargs: Any) -> Any:
        return client.run(rule(*args, **kwargs))

    @functools.wraps(rule)
    async def acall(*args: Any, **kwargs: Any) -> Any:
        return await client.arun(rule(*args, **kwargs))

    return StructuredTool.from_function(call, acall)


def _current(runtime: Runtime) -> PoolRef:
    pool: PoolRef | None = runtime.state.get("pool_id")
    if pool is None:
        raise ValueError("there is no current pool; make one with create_pool")
    return pool


def _switched(pool: PoolCreated, runtime: Runtime) -> Command[str]:
    told = {name: pool[name] for name in ("pool_id", "name", "parent", "prefix_len")}
    return _told(told, runtime, {"pool_id": pool["pool_id"]})


def _told(facts: dict[str, Any], runtime: Runtime, update: dict[str, Any]) -> Command[str]:
    message = ToolMessage(json.dumps(facts), tool_call_id=runtime.tool_call_id)
    return Command(update={**update, "messages": [message]})


def _brief(pool: Pool) -> dict[str, Any]:
    return {
        "pool_id": pool["pool_id"],
        "name": pool["name"],
        "parent": pool["parent"],
        "prefix_len": pool["prefix_len"],
        "residency": pool["residency"],
        "sessions": len(pool["sessions"]),
    }
