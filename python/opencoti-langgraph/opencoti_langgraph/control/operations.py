"""The control plane's routes, and what takes several of them, as rules without input and output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast
from urllib.parse import quote

from typing_extensions import Unpack

from opencoti_langgraph.control.errors import (
    PoolNotFoundError,
    PoolSaturatedError,
    SessionNotFoundError,
)
from opencoti_langgraph.control.steps import Request, Sleep, Steps
from opencoti_langgraph.control.wire import (
    Capacity,
    Compaction,
    EventList,
    ForkOptions,
    Policy,
    PolicyOptions,
    Pool,
    PoolCreated,
    PoolOptions,
    PoolRef,
    PoolStatus,
    PoolSubtree,
    PoolTree,
    Session,
    Tps,
)

POLL_S = 1.0


def pool_path(pool: PoolRef, action: str = "") -> str:
    path = f"/polykv/pools/{quote(str(pool), safe='')}"
    return f"{path}/{action}" if action else path


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def wire_messages(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Chat messages as the server takes them; LangChain's are converted."""
    if all(isinstance(message, dict) for message in messages):
        return list(messages)
    from opencoti_langgraph.messages import to_wire

    return to_wire(messages)


def wire_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Tools as the server takes them; LangChain's, functions and models are converted."""
    if all(isinstance(tool, dict) and tool.get("type") == "function" for tool in tools):
        return list(tools)
    from langchain_core.utils.function_calling import convert_to_openai_tool

    return [convert_to_openai_tool(tool) for tool in tools]


def _pool_body(options: Mapping[str, Any]) -> dict[str, Any]:
    body = _given(**options)
    for field in ("messages", "append_messages"):
        if field in body:
            body[field] = wire_messages(body[field])
    for field in ("tokens", "append_tokens"):
        if field in body:
            body[field] = list(body[field])
    if "tools" in body:
        body["tools"] = wire_tools(body["tools"])
    return body


def create_pool(**options: Unpack[PoolOptions]) -> Steps[PoolCreated]:
    """Makes a pool of a prefix, or takes one more reference to the pool that has it already."""
    answer = yield Request("POST", "/polykv/pools", body=_pool_body(options), timeout_s=None)
    return cast(PoolCreated, answer)


def fork_pool(parent: PoolRef, **options: Unpack[ForkOptions]) -> Steps[PoolCreated]:
    """Makes a pool that shares a beginning with `parent` and computes only the rest."""
    path = pool_path(parent, "fork")
    answer = yield Request("POST", path, body=_pool_body(options), timeout_s=None)
    return cast(PoolCreated, answer)


def pools() -> Steps[PoolTree]:
    """All pools, parents before their children."""
    return cast(PoolTree, (yield Request("GET", "/polykv/pools")))


def pool(pool: PoolRef) -> Steps[PoolSubtree]:
    """A pool with its subtree. Raises PoolNotFoundError."""
    return cast(PoolSubtree, (yield Request("GET", pool_path(pool))))


def pin_pool(
    pool: PoolRef, *, ttl_ms: int | None = None, pin_key: str | None = None
) -> Steps[PoolStatus]:
    """Keeps a pool from being evicted, until it is unpinned by every key that pinned it."""
    body = _given(ttl_ms=ttl_ms, pin_key=pin_key)
    return cast(PoolStatus, (yield Request("POST", pool_path(pool, "pin"), body=body)))


def unpin_pool(pool: PoolRef, *, pin_key: str | None = None) -> Steps[PoolStatus]:
    body = _given(pin_key=pin_key)
    return cast(PoolStatus, (yield Request("POST", pool_path(pool, "unpin"), body=body)))


def evict_pool(pool: PoolRef) -> Steps[PoolStatus]:
    """Drops the pool's cells and keeps its tokens; it is rebuilt on use."""
    return cast(PoolStatus, (yield Request("POST", pool_path(pool, "evict"), body={})))


def flush_pool(pool: PoolRef) -> Steps[PoolStatus]:
    """Evicts every pool of the subtree that nobody pins or uses."""
    return cast(PoolStatus, (yield Request("POST", pool_path(pool, "flush"), body={})))


def release_pool(pool: PoolRef, *, subtree: bool = False, force: bool = False) -> Steps[PoolStatus]:
    """Drops one reference. Without references the pool goes after the server's grace, with `force`
    at once; its sessions go on undisturbed. A pool with children: ConflictError, or with `subtree`
    they go first."""
    params = {name: 1 for name, on in (("subtree", subtree), ("force", force)) if on}
    return cast(PoolStatus, (yield Request("DELETE", pool_path(pool), params=params)))


def set_admission(pool: PoolRef, **policy: Unpack[PolicyOptions]) -> Steps[Policy]:
    """Sets the floor that the pool keeps; it governs pools below without a policy too."""
    request = Request("POST", pool_path(pool, "admission"), body=_given(**policy))
    return cast(Policy, (yield request))


def admission(pool: PoolRef) -> Steps[Policy]:
    return cast(Policy, (yield Request("GET", pool_path(pool, "admission"))))


def capacity(
    pool: PoolRef, *, expected_tokens: int | None = None, session_id: str | None = None
) -> Steps[Capacity]:
    """Would one more session of `expected_tokens` be admitted? A known session always is."""
    params = _given(expected_tokens=expected_tokens, session_id=session_id)
    return cast(Capacity, (yield Request("GET", pool_path(pool, "capacity"), params=params)))


def wait_for_room(
    pool: PoolRef,
    *,
    expected_tokens: int | None = None,
    session_id: str | None = None,
    max_wait_s: float = 60.0,
) -> Steps[Capacity]:
    """Asks for capacity until a session would be admitted. Raises PoolSaturatedError after about
    `max_wait_s` seconds of waiting."""
    waited = 0.0
    while True:
        verdict = yield from capacity(pool, expected_tokens=expected_tokens, session_id=session_id)
        if verdict["can_admit"]:
            return verdict
        pause = verdict["settle_remaining_ms"] / 1000 if verdict["settling"] else POLL_S
        pause = min(max(pause, 0.05), POLL_S)
        if waited + pause > max_wait_s:
            message = f"no room for one more session: {verdict['reason']}"
            raise PoolSaturatedError(message, details=verdict, retry_after=pause)
        yield Sleep(pause)
        waited += pause


def sessions() -> Steps[list[Session]]:
    answer = yield Request("GET", "/polykv/sessions")
    return cast(list[Session], answer["sessions"])


def session(session_id: str) -> Steps[Session]:
    """Raises SessionNotFoundError."""
    answer = yield Request("GET", "/polykv/sessions", params={"session_id": session_id})
    return cast(Session, answer["sessions"][0])


def end_session(session_id: str) -> Steps[bool]:
    """Cancels what the session does and frees it. False if there was none."""
    try:
        yield Request("DELETE", "/polykv/sessions", params={"session_id": session_id})
    except SessionNotFoundError:
        return False
    return True


def end_all_sessions() -> Steps[int]:
    """Ends every session of the server; returns how many there were."""
    answer = yield Request("DELETE", "/polykv/sessions", params={"all": 1})
    return cast(int, answer["ended"])


def tps() -> Steps[Tps]:
    """Every session's live tokens per second, now."""
    return cast(Tps, (yield Request("GET", "/polykv/tps", params={"once": 1})))


def events(last_event_id: str | None = None) -> Steps[EventList]:
    """What happened behind this event, or all that the server remembers."""
    params = {"once": 1, **_given(last_event_id=last_event_id)}
    return cast(EventList, (yield Request("GET", "/polykv/events", params=params)))


def limits() -> Steps[dict[str, Any]]:
    """Every limit as the server enforces it."""
    return cast(dict[str, Any], (yield Request("GET", "/polykv/limits")))


def props() -> Steps[dict[str, Any]]:
    """llama-server's properties; what concerns pools is under opencoti.polykv."""
    return cast(dict[str, Any], (yield Request("GET", "/props")))


def tokenize(text: str, *, add_special: bool = False) -> Steps[list[int]]:
    """The tokens of a text; with `add_special` as at the beginning of a prompt."""
    body = {"content": text, "add_special": add_special}
    answer = yield Request("POST", "/tokenize", body=body)
    return cast(list[int], answer["tokens"])


def count_tokens(messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> Steps[int]:
    """How long the prompt of a chat with these messages is, template included."""
    body: dict[str, Any] = {"messages": wire_messages(messages)}
    if tools:
        body["tools"] = wire_tools(tools)
    answer = yield Request("POST", "/v1/chat/completions/input_tokens", body=body)
    return cast(int, answer["input_tokens"])


def compact_by_refork(
    pool_id: PoolRef,
    *,
    compacted_messages: Sequence[Any] | None = None,
    compacted_tokens: Sequence[int] | None = None,
    ancestor: PoolRef | None = None,
    branch_pos: int | None = None,
    tools: Sequence[Any] | None = None,
    name: str | None = None,
    force: bool = False,
) -> Steps[Compaction]:
    """Puts a short text in the place of a long one: forks the ancestor that stays with what was
    compacted, then drops the reference to the old pool and its subtree.

    The new pool holds the first `branch_pos` tokens of `ancestor` (default: all), followed by
    `compacted_messages` or `compacted_tokens`: a summary and the recent tail. `ancestor` defaults
    to the parent of `pool_id`, at a root to the pool itself; then nothing is released. Sessions
    move with their next request that names the new pool. With `force` the old subtree goes at
    once, else after the server's grace.
    """
    old: Pool = yield from pool(pool_id)
    stable = ancestor if ancestor is not None else old["parent"]
    if stable == -1:
        stable = old["pool_id"]
    new = yield from fork_pool(
        stable,
        **cast(
            ForkOptions,
            _given(
                append_messages=compacted_messages,
                append_tokens=compacted_tokens,
                branch_pos=branch_pos,
                tools=tools,
                name=name,
            ),
        ),
    )
    stays = {new["parent"], new["pool_id"]}
    if old["pool_id"] in stays:
        return {"pool": new, "released": None}
    yield from _release_if_there(old["pool_id"], force=force)
    return {"pool": new, "released": old["pool_id"]}


def _release_if_there(pool_id: int, *, force: bool) -> Steps[None]:
    with suppress(PoolNotFoundError):
        yield from release_pool(pool_id, subtree=True, force=force)
