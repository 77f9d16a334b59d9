"""A full cache ends single requests early, with their text; never all of them, never in an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.client import Completion
from harness.server import ServerProcess
from support import Api, assert_problem, counted, counting, eventually_equal, greedy

FLAGS = ("-c", "1024", "-np", "4", "--kv-unified", "--metrics", "--slots")
WANTED = 512
STARTS = (100, 300, 500, 700)


@pytest.fixture
def small(start_server: Callable[..., ServerProcess]) -> Api:
    """A server with 1,024 cells for four slots."""
    return Api(start_server(*FLAGS).base_url)


def run_all(api: Api, path: str, bodies: Sequence[dict[str, Any]]) -> list[Completion]:
    with ThreadPoolExecutor(len(bodies)) as executor:
        return list(executor.map(lambda body: api.follow(path, body), bodies))


def assert_graceful(answers: Sequence[Completion], n_given: int) -> list[Completion]:
    """Every native stream is whole, or a truncated victim with its text; returns the victims.

    The prompts were `counting(start, n_given)`.
    """
    victims = [answer for answer in answers if answer.last["truncated"]]
    for start, answer in zip(STARTS, answers, strict=True):
        assert answer.error is None
        assert answer.last["stop"] is True
        assert answer.last["stop_type"] == "limit"
        assert answer.last["tokens_predicted"] == len(answer.token_times)
        assert answer.text.startswith(counted(start + n_given, 6))
        assert answer.last["truncated"] or answer.last["tokens_predicted"] == WANTED
    assert 1 <= len(victims) <= 3
    # Whoever was there when the cache was full for the last time has the whole text.
    assert max(answers, key=lambda answer: answer.ended_at).last["truncated"] is False
    return victims


def test_four_long_streams_on_a_small_cache_end_gracefully(small: Api) -> None:
    bodies = [greedy(counting(start, 10), WANTED, ignore_eos=True) for start in STARTS]
    victims = assert_graceful(run_all(small, "/completion", bodies), 10)
    assert small.metrics()["opencoti_polykv:kv_exhausted_total"] == len(victims)
    again = small.complete(counting(100, 10), n_predict=8)
    assert again["truncated"] is False
    assert again["content"].startswith(counted(110, 1))


def test_a_pinned_pool_stays_intact_when_its_sessions_fill_the_cache(
    small: Api, document: str
) -> None:
    prefix = small.tokens(document)[:120]
    pool = small.create_pool(tokens=prefix, pin=True)
    used = small.cells_used()
    bodies = [
        greedy(
            prefix + small.tokens(counting(start)),
            WANTED,
            ignore_eos=True,
            pool_id=pool["pool_id"],
        )
        for start in STARTS
    ]
    answers = run_all(small, "/completion", bodies)
    victims = assert_graceful(answers, 30)
    for answer in answers:
        reason = "kv_exhausted" if answer in victims else None
        assert answer.last["opencoti"].get("stop_reason") == reason
        assert answer.last["opencoti"]["cache_n"] == 120
    assert small.pool(pool["pool_id"])["residency"] == "resident"
    eventually_equal(small.cells_used, used, "cells when all streams have ended")
    after = small.complete(bodies[0]["prompt"], n_predict=12, pool_id=pool["pool_id"])
    assert after["opencoti"]["cache_n"] == 120
    assert after["content"] == answers[0].text[: len(after["content"])]


def test_a_pinned_pool_stays_intact_when_plain_requests_fill_the_cache(
    small: Api, document: str
) -> None:
    prefix = small.tokens(document)[:120]
    pool_id = small.create_pool(tokens=prefix, pin=True)["pool_id"]
    bodies = [greedy(counting(start, 10), WANTED, ignore_eos=True) for start in STARTS]
    assert_graceful(run_all(small, "/completion", bodies), 10)
    reply = small.complete(prefix + [1], n_predict=1, pool_id=pool_id)
    assert reply["opencoti"]["cache_n"] == 120


def test_a_chat_victim_ends_with_finish_reason_length_and_the_reason(small: Api) -> None:
    bodies = [
        {
            "messages": [{"role": "user", "content": f"Count from {start} to 9999."}],
            "max_tokens": WANTED,
            "ignore_eos": True,
            "temperature": 0,
            "session_id": f"counter {start}",
            "session_end": True,
        }
        for start in STARTS
    ]
    answers = run_all(small, "/v1/chat/completions", bodies)
    assert all(answer.error is None and answer.done_seen for answer in answers)
    assert {answer.finish_reason for answer in answers} == {"length"}
    victims = [a for a in answers if a.last["opencoti"].get("stop_reason") == "kv_exhausted"]
    assert 1 <= len(victims) <= 3
    assert all(victim.text for victim in victims)


def test_idle_sessions_make_room_for_a_running_request(small: Api) -> None:
    for number in range(3):
        small.complete(counting(100, 50), n_predict=4, session_id=f"idle {number}")
    reply = small.complete(counting(600, 10), n_predict=700, ignore_eos=True)
    assert reply["truncated"] is False
    assert reply["tokens_predicted"] == 700


def test_a_prompt_beyond_the_context_is_refused_and_changes_nothing(small: Api) -> None:
    before = small.state()
    for stream in (False, True):
        reply = small.send("POST", "/completion", greedy([504] * 1100, 8, stream=stream))
        error = assert_problem(reply, 400, "exceed_context_size_error")
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (1100, 1024)
    assert small.state() == before


def test_generation_up_to_the_context_ends_truncated(small: Api) -> None:
    reply = small.complete(counting(100, 10), n_predict=5000, ignore_eos=True)
    assert reply["truncated"] is True
    assert reply["stop_type"] == "limit"
    assert 1024 - 5 <= reply["tokens_evaluated"] + reply["tokens_predicted"] <= 1024 + 1
