"""The control client against a scripted server, each rule blocking and on an event loop."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.exceptions import ContextOverflowError, ModelError, ModelRateLimitError
from langchain_core.messages import HumanMessage, SystemMessage

from opencoti_langgraph.control import (
    AuthenticationError,
    ConflictError,
    ContextExceededError,
    ControlClient,
    InvalidRequestError,
    NotFoundError,
    OpencotiError,
    PoolNotFoundError,
    PoolSaturatedError,
    PrefixMismatchError,
    ServerError,
    ServerUnreachableError,
    SessionEndedError,
    UnavailableError,
)
from opencoti_langgraph.control import operations as rules
from tests.scripted_server import Reply, ScriptedServer, data_event, problem

Call = Callable[..., Any]

ROOT = {"pool_id": 7000, "parent": -1}
WORK = {"pool_id": 7001, "parent": 7000}
NEW = {"pool_id": 7002, "parent": 7000, "created": True}


def test_every_operation_is_a_method_in_both_forms() -> None:
    names = [name for name, value in vars(rules).items() if inspect.isgeneratorfunction(value)]
    public = [name for name in names if not name.startswith("_")]
    assert public
    for name in public:
        assert getattr(ControlClient, name).__doc__ == getattr(rules, name).__doc__
        assert inspect.iscoroutinefunction(getattr(ControlClient, f"a{name}"))


def test_a_pool_is_made_of_messages_of_langchain(server: ScriptedServer, call: Call) -> None:
    server.on("POST /polykv/pools", ROOT)
    messages = [SystemMessage("Be brief."), HumanMessage("The document.")]
    assert call("create_pool", messages=messages, name="shared") == ROOT
    asked = server.asked[-1]
    assert asked.headers["authorization"] == "Bearer secret"
    assert asked.headers["content-type"] == "application/json"
    assert asked.body == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "The document."},
        ],
        "name": "shared",
    }


def test_tools_of_a_pool_may_be_functions(server: ScriptedServer, call: Call) -> None:
    def add(a: int) -> int:
        """Adds."""
        return a

    server.on("POST /polykv/pools", ROOT)
    call("create_pool", messages=[{"role": "system", "content": "x"}], tools=[add])
    assert server.asked[-1].body["tools"][0]["function"]["name"] == "add"


def test_a_pool_is_named_in_the_path_whatever_its_name(server: ScriptedServer, call: Call) -> None:
    server.on("POST /polykv/pools/a%2Fb%20c/fork", WORK)
    assert call("fork_pool", "a/b c", append_tokens=(1, 2), branch_pos=0) == WORK
    assert server.asked[-1].body == {"append_tokens": [1, 2], "branch_pos": 0}


def test_release_says_only_what_it_means(server: ScriptedServer, call: Call) -> None:
    server.on("DELETE /polykv/pools/7000", {"released": True})
    call("release_pool", 7000)
    assert server.asked[-1].params == {}
    call("release_pool", 7000, subtree=True, force=True)
    assert server.asked[-1].params == {"subtree": "1", "force": "1"}


def test_a_session_that_is_gone_has_ended(server: ScriptedServer, call: Call) -> None:
    server.on("DELETE /polykv/sessions", {"ended": 1}, problem(404, "session_not_found"))
    assert call("end_session", "anna") is True
    assert server.asked[-1].params == {"session_id": "anna"}
    assert call("end_session", "anna") is False


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (problem(400, "invalid_request_error"), InvalidRequestError),
        (problem(400, "exceed_context_size_error", n_ctx=8), ContextExceededError),
        (problem(401, "authentication_error"), AuthenticationError),
        (problem(404, "pool_not_found"), PoolNotFoundError),
        (problem(404, "not_found_error"), NotFoundError),
        (problem(410, "session_ended"), SessionEndedError),
        (problem(409, "name_taken"), ConflictError),
        (problem(409, "prefix_mismatch", mismatch_pos=3), PrefixMismatchError),
        (problem(429, "pool_saturated"), PoolSaturatedError),
        (problem(503, "no_free_cells"), UnavailableError),
        (problem(500, "server_error"), ServerError),
        (Reply("not an object", 502), ServerError),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_an_error_answer_is_an_exception_of_its_kind(
    server: ScriptedServer, call: Call, reply: Reply, kind: type[OpencotiError]
) -> None:
    server.on("GET /polykv/pools", reply)
    with pytest.raises(kind) as caught:
        call("pools")
    assert type(caught.value) is kind
    assert isinstance(caught.value, ModelError)
    assert caught.value.status == reply.status


def test_errors_say_what_the_server_said(server: ScriptedServer, client: ControlClient) -> None:
    mismatch = problem(409, "prefix_mismatch", "parts", mismatch_pos=3)
    server.on("GET /polykv/pools", mismatch)
    with pytest.raises(PrefixMismatchError, match="parts") as parted:
        client.pools()
    assert parted.value.mismatch_pos == 3
    server.on(
        "GET /polykv/pools", problem(400, "exceed_context_size_error", n_prompt_tokens=9, n_ctx=8)
    )
    with pytest.raises(ContextOverflowError) as overflow:
        client.pools()
    assert isinstance(overflow.value, ContextExceededError)
    assert (overflow.value.n_prompt_tokens, overflow.value.n_ctx) == (9, 8)


def test_a_saturated_pool_says_when_to_come_again(
    server: ScriptedServer, client: ControlClient
) -> None:
    full = problem(429, "pool_saturated", retry_after_ms=1500, reason="below floor")
    server.on("GET /polykv/pools", full)
    with pytest.raises(ModelRateLimitError) as caught:
        client.pools()
    assert isinstance(caught.value, PoolSaturatedError)
    assert (caught.value.retry_after, caught.value.reason) == (1.5, "below floor")

    server.on("GET /polykv/pools", Reply({"error": {}}, 503, {"Retry-After": "7"}))
    with pytest.raises(UnavailableError) as unavailable:
        client.pools()
    assert unavailable.value.retry_after == 7


def test_nobody_there(call: Call, client: ControlClient) -> None:
    client.base_url = "http://127.0.0.1:9"
    with pytest.raises(ServerUnreachableError, match=r"http://127\.0\.0\.1:9"):
        call("pools")


def verdict(can_admit: bool, **fields: Any) -> dict[str, Any]:
    return {"can_admit": can_admit, "reason": "x", "settling": False, "settle_remaining_ms": 0} | (
        fields
    )


def test_waiting_for_room_asks_until_there_is_some(server: ScriptedServer, call: Call) -> None:
    settling = verdict(False, settling=True, settle_remaining_ms=60)
    server.on("GET /polykv/pools/7000/capacity", settling, settling, verdict(True))
    assert call("wait_for_room", 7000, expected_tokens=100, session_id="s")["can_admit"]
    assert len(server.asked) == 3
    assert server.asked[0].params == {"expected_tokens": "100", "session_id": "s"}


def test_waiting_for_room_ends(server: ScriptedServer, call: Call) -> None:
    server.on("GET /polykv/pools/7000/capacity", verdict(False, reason="below floor"))
    with pytest.raises(PoolSaturatedError, match="below floor"):
        call("wait_for_room", 7000, max_wait_s=0)


def test_compaction_forks_the_ancestor_and_releases_the_old_pool(
    server: ScriptedServer, call: Call
) -> None:
    server.on("GET /polykv/pools/7001", WORK)
    server.on("POST /polykv/pools/7000/fork", NEW)
    server.on("DELETE /polykv/pools/7001", {"released": False})
    done = call("compact_by_refork", 7001, compacted_messages=[HumanMessage("Summary")])
    assert done == {"pool": NEW, "released": 7001}
    assert [f"{asked.method} {asked.path}" for asked in server.asked] == [
        "GET /polykv/pools/7001",
        "POST /polykv/pools/7000/fork",
        "DELETE /polykv/pools/7001",
    ]
    fork, release = server.asked[1:]
    assert fork.body == {"append_messages": [{"role": "user", "content": "Summary"}]}
    assert release.params == {"subtree": "1"}


def test_the_first_compaction_of_a_root_releases_nothing(
    server: ScriptedServer, call: Call
) -> None:
    server.on("GET /polykv/pools/7000", ROOT)
    server.on("POST /polykv/pools/7000/fork", NEW)
    done = call("compact_by_refork", 7000, compacted_tokens=[1, 2], branch_pos=5)
    assert done == {"pool": NEW, "released": None}
    assert server.asked[-1].body == {"append_tokens": [1, 2], "branch_pos": 5}


def test_compaction_does_not_mind_that_the_old_pool_has_gone(
    server: ScriptedServer, call: Call
) -> None:
    server.on("GET /polykv/pools/7001", WORK)
    server.on("POST /polykv/pools/7000/fork", NEW)
    server.on("DELETE /polykv/pools/7001", problem(404, "pool_not_found"))
    assert call("compact_by_refork", 7001, compacted_tokens=[1])["pool"] == NEW


def event(number: int, name: str = "pool_created") -> str:
    return f'id: b-{number}\nevent: {name}\ndata: {{"n": {number}}}\n\n'


async def take(events: Any, n: int) -> list[Any]:
    taken = []
    async for item in events:
        taken.append(item)
        if len(taken) == n:
            break
    await events.aclose()
    return taken


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_events_go_on_behind_the_last_one_after_a_break(
    server: ScriptedServer, client: ControlClient, mode: str
) -> None:
    first = Reply(events=[":\n\n", event(1), event(2)])
    server.on(
        "GET /polykv/events", first, problem(503, "unavailable_error"), Reply(events=[event(3)])
    )
    if mode == "sync":
        stream = client.watch_events()
        events = [next(stream) for _ in range(3)]
    else:
        events = asyncio.run(take(client.awatch_events(), 3))
    assert [entry["data"]["n"] for entry in events] == [1, 2, 3]
    assert events[0] == {"type": "pool_created", "data": {"n": 1}, "id": "b-1"}
    assert "last-event-id" not in server.asked[0].headers
    assert [asked.headers["last-event-id"] for asked in server.asked[1:3]] == ["b-2", "b-2"]


def test_events_that_are_refused_end(server: ScriptedServer, client: ControlClient) -> None:
    server.on("GET /polykv/events", problem(401, "authentication_error"))
    with pytest.raises(AuthenticationError):
        next(client.watch_events())


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_rates_are_watched(server: ScriptedServer, client: ControlClient, mode: str) -> None:
    server.on("GET /polykv/tps", Reply(events=[data_event({"ts": 1}), data_event({"ts": 2})]))
    if mode == "sync":
        rates = list(client.watch_tps(reconnect=False))
    else:
        rates = asyncio.run(take(client.awatch_tps(reconnect=False), 2))
    assert [dict(rate) for rate in rates] == [{"ts": 1}, {"ts": 2}]


def test_the_control_client_loads_no_langgraph() -> None:
    script = (
        "import sys, opencoti_langgraph.control; "
        "print([name for name in sys.modules if name in ('langgraph', 'langchain')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
