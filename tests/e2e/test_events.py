"""GET /polykv/events: what happens, in order, without a gap that is not told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harness.client import Exchange
from support import Api, assert_problem, greedy, read_tokens


def once(api: Api, after: str | None = None) -> Any:
    since = "" if after is None else f"&last_event_id={after}"
    return api.get(f"/polykv/events?once=1{since}")


def kinds(events: list[Any]) -> list[str]:
    return [event["kind"] for event in events]


def follow(api: Api, last_event_id: str | None = None) -> Exchange:
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    return api.watch("/polykv/events", headers)


def data(exchange: Exchange) -> Iterator[Any]:
    return (event.data for event in exchange.events())


def until(events: Iterator[Any], kind: str) -> list[Any]:
    """The events up to the first of the kind."""
    seen: list[Any] = []
    for event in events:
        seen.append(event)
        if event["kind"] == kind:
            return seen
    raise AssertionError(f"the stream ended without {kind}: {kinds(seen)}")


@pytest.fixture
def start(api: Api) -> str:
    """The id of the newest event before the test."""
    return once(api)["last_event_id"]


def test_a_pool_and_a_session_from_beginning_to_end(api: Api, start: str) -> None:
    pool = api.create_pool(prompt="A prefix that agents share.", name="shared")
    api.complete("A prefix that agents share. And", 4, pool_id="shared", session_id="agent")
    api.end_session("agent")
    api.release(pool["pool_id"])
    told = once(api, start)
    assert not told["gap"]
    events = told["events"]
    assert kinds(events) == [
        "pool_created",
        "pool_sealed",
        "session_begun",
        "session_attached",
        "session_finished",
        "session_ended",
        "pool_released",
    ]
    assert {event["pool_id"] for event in events} == {pool["pool_id"]}
    created, sealed, begun, attached, finished, *_ = events
    assert created["name"] == "shared" and created["parent"] is None
    assert sealed["n_prefilled"] == created["prefix_len"] == pool["prefix_len"]
    assert begun["session_id"] == finished["session_id"] == "agent"
    assert attached["cache_n"] == pool["prefix_len"]
    assert finished["n_generated"] == 4 and finished["stop"] == "limit"
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)


def test_a_stream_begins_with_the_whole_picture_and_goes_on_from_there(api: Api) -> None:
    pool = api.create_pool(tokens=[1, 2, 3])
    with follow(api) as exchange:
        events = data(exchange)
        reset = next(events)
        assert (reset["kind"], reset["reason"]) == ("reset", "begin")
        assert [p["pool_id"] for p in reset["snapshot"]["pools"]] == [pool["pool_id"]]
        assert reset["snapshot"]["sessions"] == []
        api.release(pool["pool_id"])
        assert kinds(until(events, "pool_released")) == ["pool_released"]


def test_a_client_that_comes_back_gets_what_it_missed(api: Api) -> None:
    with follow(api) as exchange:
        lines = exchange.lines()
        seen = [next(lines) for _ in range(3)]
        assert [line.split(":")[0] for line in seen] == ["id", "event", "data"]
    last_id = seen[0].removeprefix("id: ")
    pool = api.create_pool(tokens=[1, 2, 3], pin=True)
    api.release(pool["pool_id"])
    with follow(api, last_id) as exchange:
        missed = until(data(exchange), "pool_released")
    assert kinds(missed) == [
        "pool_created", "pool_pinned", "pool_sealed", "pool_unpinned", "pool_released",
    ]
    with follow(api, missed[1]["id"]) as exchange:
        again = until(data(exchange), "pool_released")
    assert again == missed[2:]


def test_a_client_that_comes_too_late_is_told(api: Api, start: str) -> None:
    """More happens than the log holds: pins are quick."""
    pool = api.create_pool(tokens=[1, 2, 3])
    path = f"/polykv/pools/{pool['pool_id']}"
    n = 0
    while not once(api, start)["gap"]:
        for _ in range(300):
            api.post(f"{path}/pin", {})
            api.post(f"{path}/unpin", {})
        n += 300
        assert n <= 3000
    assert len(once(api, start)["events"]) == len(once(api)["events"])
    for last_id in (start, "1-1", "nonsense"):
        with follow(api, last_id) as exchange:
            reset = next(data(exchange))
        assert (reset["kind"], reset["reason"]) == ("reset", "gap")
        assert [p["pool_id"] for p in reset["snapshot"]["pools"]] == [pool["pool_id"]]


def test_the_gate_says_what_it_decides(api: Api, start: str) -> None:
    api.create_pool(prompt="A prefix that agents share.", name="shared")
    policy = {"target_tps_per_session": 100_000, "mode": "enforced"}
    api.post("/polykv/pools/shared/admission", policy)
    prompt = "A prefix that agents share. One, two,"
    body = greedy(prompt, 2000, pool_id="shared", ignore_eos=True, stream=True)
    with api.open("/completion", {**body, "session_id": "first"}) as first:
        read_tokens(first, 60)
        refused = api.send("POST", "/completion", {**body, "session_id": "second"},
                           {"X-Request-Id": "asked-for-it"})
        assert_problem(refused, 429, "pool_saturated")
        extra = {**body, "n_predict": 2, "session_id": "third", "overcommit": True, "stream": False}
        api.post("/completion", extra)
    told = [event for event in once(api, start)["events"] if event["kind"] == "admission"]
    assert [(event["session_id"], event["decision"]) for event in told] == [
        ("first", "guaranteed"), ("second", "reject"), ("third", "overcommit"),
    ]
    assert told[1]["reason"] == "projected mean tps below floor"
    assert told[1]["projected_mean_tps_if_admitted"] < 100_000
    assert told[1]["request_id"] == "asked-for-it"
    settling = [event["kind"] for event in once(api, start)["events"] if "settle" in event["kind"]]
    assert settling[:3] == ["settle_begun", "settle_ended", "settle_begun"]
