"""A pool that keeps a tokens-per-second floor: what new sessions meet at its gate."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.client import Exchange
from support import Api, assert_problem, eventually, greedy, read_tokens

UNREACHABLE = 100_000  # tokens per second


@pytest.fixture
def pool(api: Api, document: str) -> Any:
    return api.create_pool(tokens=api.tokens(document)[:150], name="shared")


def set_policy(api: Api, **policy: Any) -> Any:
    body = {"target_tps_per_session": UNREACHABLE, "mode": "enforced", "settle_tokens": 4, **policy}
    return api.post("/polykv/pools/shared/admission", body)


def prompt(api: Api, document: str, own: str) -> list[int]:
    return api.tokens(document)[:150] + api.tokens(own)


def spawn(api: Api, document: str, session: str, n_predict: int = 4000, **fields: Any) -> Exchange:
    """A session that decodes until it is dropped."""
    body = greedy(
        prompt(api, document, session),
        n_predict,
        stream=True,
        ignore_eos=True,
        pool_id="shared",
        session_id=session,
        **fields,
    )
    return api.open("/completion", body)


def settled(api: Api) -> bool:
    return not api.get("/polykv/pools/shared/capacity")["settling"]


def test_a_policy_is_shown_where_it_was_set(api: Api, pool: Any) -> None:
    assert api.get("/polykv/pools/shared/admission") == {"pool_id": pool["pool_id"]}
    policy = set_policy(api, target_tps_per_session=12.5, on_saturation="queue", max_queue=3)
    assert policy["pool_id"] == pool["pool_id"]
    assert policy["target_tps_per_session"] == 12.5
    assert policy["guarantee_min_sessions"] == 1
    assert api.get("/polykv/pools/shared/admission") == policy
    shown = api.pool(pool["pool_id"])["admission"]
    assert shown["mode"] == "enforced" and shown["on_saturation"] == "queue"


@pytest.mark.parametrize(
    "fields",
    [
        {"target_tps_per_session": 0},
        {"target_tps_per_session": "5"},
        {"mode": "strict"},
        {"on_saturation": "wait"},
        {"settle_tokens": 0},
        {"max_queue": -1},
        {"floor": 3},
    ],
    ids=str,
)
def test_a_wrong_policy_names_the_field(api: Api, pool: Any, fields: dict[str, Any]) -> None:
    body = {"target_tps_per_session": 5, **fields}
    error = assert_problem(api.send("POST", "/polykv/pools/shared/admission", body), 400)
    assert next(iter(fields)) in error["message"]
    assert api.pool(pool["pool_id"])["admission"] is None


def test_capacity_without_a_policy_looks_at_cells_only(api: Api, pool: Any) -> None:
    capacity = api.get("/polykv/pools/shared/capacity")
    assert capacity["can_admit"] is True
    assert capacity["governed_by"] is None
    assert capacity["projected_mean_tps_if_admitted"] is None
    assert capacity["kv_streams_total"] is None
    refused = api.get("/polykv/pools/shared/capacity?expected_tokens=100000")
    assert refused["can_admit"] is False
    assert refused["reason"] == "context headroom exhausted"
    assert_problem(api.send("GET", "/polykv/pools/shared/capacity?expected_tokens=x"), 400)
    assert_problem(api.send("GET", "/polykv/pools/nobody/capacity"), 404)


def test_a_saturated_pool_refuses_new_sessions_and_serves_known_ones(
    api: Api, pool: Any, document: str
) -> None:
    set_policy(api)
    first = spawn(api, document, "first")
    read_tokens(first, 12)
    eventually(lambda: settled(api), "the first admission settles")
    capacity = api.get("/polykv/pools/shared/capacity")
    assert capacity["can_admit"] is False
    assert capacity["reason"] == "projected mean tps below floor"
    assert capacity["n_pool_sessions"] == 1
    assert capacity["mean_active_tps"] > 0

    body = greedy(prompt(api, document, "second"), 4, pool_id="shared", session_id="second")
    reply = api.send("POST", "/completion", body)
    error = assert_problem(reply, 429, "pool_saturated")
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert error["retry_after_ms"] == 1000 * int(reply.headers["retry-after"])
    assert error["reason"] == "projected mean tps below floor"

    first.drop()
    eventually(lambda: api.sessions()["first"]["state"] == "idle", "the first is cancelled")
    again = api.complete(
        prompt(api, document, "first"), 4, pool_id="shared", session_id="first"
    )
    assert again["tokens_predicted"] == 4
    known = api.get("/polykv/pools/shared/capacity?session_id=first")
    assert known["known_session"] is True and known["can_admit"] is True


def test_no_answer_is_longer_than_the_policy_allows(api: Api, pool: Any, document: str) -> None:
    set_policy(api, max_tokens_per_request=5)
    body = {"prompt": prompt(api, document, "first"), "max_tokens": 40, "ignore_eos": True}
    governed = api.post("/v1/completions", {**body, "pool_id": "shared"})
    assert governed["usage"]["completion_tokens"] == 5
    assert governed["choices"][0]["finish_reason"] == "length"
    assert api.post("/v1/completions", body)["usage"]["completion_tokens"] == 40


def test_overcommit_and_plain_requests_pass(api: Api, pool: Any, document: str) -> None:
    set_policy(api)
    first = spawn(api, document, "first")
    read_tokens(first, 12)
    eventually(lambda: settled(api), "the first admission settles")
    over = api.complete(
        prompt(api, document, "over"), 2, pool_id="shared", session_id="over", overcommit=True
    )
    assert over["tokens_predicted"] == 2
    assert api.complete("plain", 2)["tokens_predicted"] == 2
    first.drop()


def test_a_warned_session_starts_with_a_header(api: Api, pool: Any, document: str) -> None:
    set_policy(api, on_saturation="warn")
    first = spawn(api, document, "first")
    read_tokens(first, 12)
    eventually(lambda: settled(api), "the first admission settles")
    body = greedy(prompt(api, document, "second"), 2, pool_id="shared", session_id="second")
    reply = api.send("POST", "/completion", body)
    assert reply.status == 200
    assert reply.headers["x-sessions-remaining"] == "0"
    assert reply.json["opencoti"]["backpressure"]["sessions_remaining"] == 0
    first.drop()


def test_a_queued_session_starts_when_the_other_ends(api: Api, pool: Any, document: str) -> None:
    set_policy(api, on_saturation="queue", max_queue=1)
    first = spawn(api, document, "first")
    read_tokens(first, 12)
    eventually(lambda: settled(api), "the first admission settles")
    body = greedy(prompt(api, document, "second"), 2, pool_id="shared", session_id="second")
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(api.send, "POST", "/completion", body)
        eventually(
            lambda: api.get("/polykv/pools/shared/capacity")["queue_len"] == 1, "one is queued"
        )
        third = api.send("POST", "/completion", {**body, "session_id": "third"})
        assert_problem(third, 429, "pool_saturated")
        assert not second.done()
        api.end_session("first")
        assert second.result().status == 200
    first.drop()


def test_a_queued_session_is_told_when_its_time_is_over(
    api: Api, pool: Any, document: str
) -> None:
    set_policy(api, on_saturation="queue", queue_timeout_ms=300)
    first = spawn(api, document, "first")
    read_tokens(first, 12)
    eventually(lambda: settled(api), "the first admission settles")
    body = greedy(prompt(api, document, "second"), 2, pool_id="shared", session_id="second")
    assert_problem(api.send("POST", "/completion", body), 503, "pool_saturated")
    first.drop()


def test_the_feed_tells_every_sessions_rate(api: Api, pool: Any, document: str) -> None:
    first = spawn(api, document, "first")
    second = spawn(api, document, "second")
    read_tokens(first, 30)
    read_tokens(second, 30)
    once = api.get("/polykv/tps?once=1")
    assert once["n_active"] == 2
    rates = {s["session_id"]: s["tps_ewma"] for s in once["sessions"]}
    assert rates["first"] > 0 and rates["second"] > 0
    assert once["mean_active_tps"] == pytest.approx((rates["first"] + rates["second"]) / 2)
    assert once["aggregate_tps"] > 0
    feed = Exchange(api.base_url, "GET", "/polykv/tps", None, None, 30)
    documents = []
    for event in feed.events():
        documents.append(event.data)
        if len(documents) == 3:
            break
    feed.drop()
    assert [set(d) for d in documents] == [set(once)] * 3
    assert documents[2]["ts"] > documents[0]["ts"]
    assert json.dumps(documents[0])
    first.drop()
    second.drop()
