"""Sessions keep their KV between turns and stay apart from each other."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support import Api, assert_problem, counting, eventually_equal, greedy


def turn(api: Api, session_id: str, prompt: list[int], **fields: object) -> tuple[int, list[int]]:
    """One turn of 6 tokens: (cached tokens, the prompt with the answer after it)."""
    body = greedy(prompt, 6, ignore_eos=True, return_tokens=True, session_id=session_id, **fields)
    reply = api.post("/completion", body)
    assert reply["opencoti"]["session_id"] == session_id
    return reply["opencoti"]["cache_n"], prompt + reply["tokens"]


def test_a_session_finds_all_of_its_last_turn(api: Api) -> None:
    _, context = turn(api, "agent 1", api.tokens(counting(10)))
    for _ in range(3):
        expected = {len(context) - 1, len(context)}  # the last token may not have been fed
        cached, context = turn(api, "agent 1", context + api.tokens("\nAnd then:"))
        assert cached in expected


def test_a_session_survives_other_traffic(api: Api) -> None:
    _, context = turn(api, "kept", api.tokens(counting(10)))
    for number in range(6):
        api.complete(counting(100 * number + 7), n_predict=3)
    cached, _ = turn(api, "kept", context + api.tokens(" so"))
    assert cached >= len(context) - 1


def test_a_session_of_a_pool_shares_the_prefix_first_and_then_continues(
    api: Api, document: str
) -> None:
    tokens = api.tokens(document)[:120]
    pool_id = api.create_pool(tokens=tokens[:100])["pool_id"]
    cached, context = turn(api, "pooled", tokens, pool_id=pool_id)
    assert cached == 100
    cached, _ = turn(api, "pooled", context + api.tokens(" more"), pool_id=pool_id)
    assert cached >= len(context) - 1
    assert [s["session_id"] for s in api.pool(pool_id)["sessions"]] == ["pooled"]


def test_a_session_keeps_its_kv_over_chat_turns(api: Api) -> None:
    messages = [{"role": "user", "content": "Name a colour and say why you like it."}]
    body = {"max_tokens": 12, "temperature": 0, "session_id": "chat"}
    first = api.post("/v1/chat/completions", {**body, "messages": messages})
    messages += [first["choices"][0]["message"], {"role": "user", "content": "And another one?"}]
    second = api.post("/v1/chat/completions", {**body, "messages": messages})
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == second["opencoti"]["cache_n"] >= first["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    "ids",
    [("session-1", "session-12"), ("a", "a "), ("é", "e\u0301"), ("X", "x"), ("n" * 256, "n" * 255)],
    ids=["prefix", "space", "unicode forms", "case", "256 bytes"],
)
def test_session_ids_are_compared_by_equality_only(api: Api, ids: tuple[str, str]) -> None:
    prompts = [api.tokens(counting(start)) for start in (10, 500)]
    contexts = [turn(api, session_id, p)[1] for session_id, p in zip(ids, prompts, strict=True)]
    assert set(api.sessions()) == set(ids)
    for session_id, context in zip(ids, contexts, strict=True):
        cached, _ = turn(api, session_id, context + api.tokens(" and"))
        assert cached >= len(context) - 1


def test_sessions_are_listed_with_their_context(api: Api) -> None:
    _, context = turn(api, "listed", api.tokens(counting(10)))
    status = api.get("/polykv/sessions?session_id=listed")["sessions"]
    assert [session["session_id"] for session in status] == ["listed"]
    assert status[0]["pool_id"] is None
    assert len(context) - 1 <= status[0]["ctx_used"] <= len(context)
    assert status[0]["ctx_used"] + status[0]["ctx_headroom_tokens"] == status[0]["ctx_total"] == 8192
    assert_problem(api.send("GET", "/polykv/sessions?session_id=other"), 404)


def test_ending_a_session_frees_its_cells(api: Api) -> None:
    before = api.cells_used()
    _, context = turn(api, "left", api.tokens(counting(10)))
    turn(api, "stays", api.tokens(counting(700)))
    assert api.cells_used() >= before + len(context) - 1
    with_one = api.cells_used()
    api.end_session("left")
    assert set(api.sessions()) == {"stays"}
    assert api.cells_used() in {with_one - len(context), with_one - len(context) + 1}
    api.end_session("stays")
    assert api.cells_used() == before


def test_ending_all_sessions_has_to_be_said(api: Api) -> None:
    turn(api, "one", api.tokens("Hello"))
    headers = {"Content-Type": "application/json"}
    assert_problem(api.send("DELETE", "/polykv/sessions", headers=headers), 400)
    assert set(api.sessions()) == {"one"}
    api.delete("/polykv/sessions?all=1")
    assert api.sessions() == {}


def test_session_end_on_a_request_ends_the_session_after_it(api: Api) -> None:
    before = api.cells_used()
    _, context = turn(api, "last", api.tokens(counting(10)))
    cached, _ = turn(api, "last", context + api.tokens(" end"), session_end=True)
    assert cached >= len(context) - 1
    assert api.sessions() == {}
    assert api.cells_used() == before


def test_a_request_with_a_pool_only_gets_a_session_id_of_its_own(api: Api) -> None:
    pool_id = api.create_pool(tokens=api.tokens(counting(10)))["pool_id"]
    prompt = api.tokens(counting(10)) + api.tokens(" 40")
    ids = [
        api.complete(prompt, n_predict=1, pool_id=pool_id)["opencoti"]["session_id"]
        for _ in range(2)
    ]
    assert ids[0] != ids[1]
    assert api.sessions() == {}


def test_a_second_request_on_one_session_waits_for_the_first(api: Api) -> None:
    body = greedy(counting(10), 60, session_id="busy", stream=True)
    with ThreadPoolExecutor(2) as executor:
        first = executor.submit(api.follow, "/completion", body)
        while api.sessions().get("busy") is None and not first.done():
            time.sleep(0.01)
        second = executor.submit(api.follow, "/completion", body)
    assert first.result().text == second.result().text
    assert first.result().token_times[-1] <= second.result().token_times[0]


def test_ending_a_session_cancels_its_running_request(api: Api) -> None:
    before = api.cells_used()
    body = greedy(counting(10), 4000, ignore_eos=True, session_id="doomed", stream=True)
    with api.open("/completion", body) as exchange:
        events = exchange.events()
        next(events)
        api.end_session("doomed")
        remaining = sum(1 for _ in events)
    assert remaining < 4000 - 1
    eventually_equal(api.cells_used, before, "cells after the session was ended")
    assert api.sessions() == {}


def test_a_session_may_move_to_another_pool(api: Api, document: str) -> None:
    tokens = api.tokens(document)
    first, second = (api.create_pool(tokens=tokens[a : a + 80])["pool_id"] for a in (0, 300))
    turn(api, "mover", tokens[:100], pool_id=first)
    cached, _ = turn(api, "mover", tokens[300:400], pool_id=second)
    assert cached == 80
    assert api.pool(first)["sessions"] == []
    assert [s["session_id"] for s in api.pool(second)["sessions"]] == ["mover"]
