"""A full cache makes the newest requests wait, and they end whole; where none may wait, single
requests end early with their text. Never all of them, never in an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import StartServer
from harness.client import Completion
from servers import Servers
from support import (
    Api,
    assert_as_alone,
    assert_problem,
    counted,
    counting,
    eventually,
    eventually_equal,
    greedy,
)

FLAGS = ("-c", "1024", "-np", "4", "--kv-unified", "--metrics", "--slots")
WANTED = 512
ENOUGH = 320  # tokens of each of four streams that fill the cache as well
STARTS = (100, 300, 500, 700)
# The cache of a window has 1,280 cells for two sequences, whatever -c is.
WINDOW_FLAGS = (*"-c 4096 -np 2 -ub 256 --kv-unified --metrics".split(),)
WINDOW_FLAGS += ("--polykv-max-pools", "0", "--polykv-max-sessions", "0")
WINDOW_CELLS = 1280


def shared(servers: Servers, binary: Path, flags: Sequence[str]) -> Iterator[Api]:
    api = Api(servers.shared(binary, flags).base_url)
    api.clear()
    yield api
    api.clear()


@pytest.fixture
def small(servers: Servers, server_binary: Path) -> Iterator[Api]:
    """A server with 1,024 cells for four slots."""
    yield from shared(servers, server_binary, FLAGS)


@pytest.fixture
def strict(servers: Servers, server_binary: Path) -> Iterator[Api]:
    """One like it, on which no request may wait for cells."""
    yield from shared(servers, server_binary, (*FLAGS, "--polykv-park-mib", "0"))


def run_all(api: Api, path: str, bodies: Sequence[dict[str, Any]]) -> list[Completion]:
    with ThreadPoolExecutor(len(bodies)) as executor:
        return list(executor.map(lambda body: api.follow(path, body), bodies))


def counters(api: Api) -> dict[str, float]:
    names = ("parked", "resumed", "kv_exhausted", "sessions_saved", "sessions_restored")
    metrics = api.metrics()
    return {name: metrics[f"opencoti_polykv:{name}_total"] for name in names}


def grown(api: Api, before: dict[str, float]) -> dict[str, float]:
    """By how much the counters have grown."""
    return {name: value - before[name] for name, value in counters(api).items()}


def assert_graceful(
    answers: Sequence[Completion], n_given: int, wanted: int = WANTED
) -> list[Completion]:
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
        assert answer.last["truncated"] or answer.last["tokens_predicted"] == wanted
    return victims


def test_four_long_streams_on_a_small_cache_all_end_whole_as_each_alone(small: Api) -> None:
    bodies = [greedy(counting(start, 10), WANTED, ignore_eos=True) for start in STARTS]
    alone = [small.post("/completion", {**body, "n_probs": 2}) for body in bodies]
    before = counters(small)
    answers = run_all(small, "/completion", bodies)
    assert assert_graceful(answers, 10) == []
    for answer, reply in zip(answers, alone, strict=True):
        assert_as_alone(answer.text, reply)
    after = grown(small, before)
    assert after["parked"] >= 3
    assert after["resumed"] == after["parked"]
    assert after["kv_exhausted"] == 0
    assert small.metrics()["opencoti_polykv:parked_bytes"] == 0


def test_without_a_park_budget_the_victims_end_truncated_and_the_rest_whole(strict: Api) -> None:
    before = counters(strict)
    bodies = [greedy(counting(start, 10), ENOUGH, ignore_eos=True) for start in STARTS]
    answers = run_all(strict, "/completion", bodies)
    victims = assert_graceful(answers, 10, ENOUGH)
    assert 1 <= len(victims) <= 3
    # Whoever was there when the cache was full for the last time has the whole text.
    assert max(answers, key=lambda answer: answer.ended_at).last["truncated"] is False
    assert grown(strict, before)["kv_exhausted"] == len(victims)
    again = strict.complete(counting(100, 10), n_predict=8)
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
            ENOUGH,
            ignore_eos=True,
            pool_id=pool["pool_id"],
        )
        for start in STARTS
    ]
    before = counters(small)
    answers = run_all(small, "/completion", bodies)
    assert assert_graceful(answers, 30, ENOUGH) == []
    assert grown(small, before)["parked"] > 0
    for answer in answers:
        assert answer.last["opencoti"]["cache_n"] == 120
    assert small.pool(pool["pool_id"])["residency"] == "resident"
    eventually(lambda: small.cells_used() <= used, "no more cells than before")
    after = small.complete(bodies[0]["prompt"], n_predict=12, pool_id=pool["pool_id"])
    assert after["opencoti"]["cache_n"] == 120
    assert after["content"] == answers[0].text[: len(after["content"])]


def test_a_pinned_pool_stays_intact_when_plain_requests_fill_the_cache(
    strict: Api, document: str
) -> None:
    prefix = strict.tokens(document)[:120]
    pool_id = strict.create_pool(tokens=prefix, pin=True)["pool_id"]
    bodies = [greedy(counting(start, 10), ENOUGH, ignore_eos=True) for start in STARTS]
    assert len(assert_graceful(run_all(strict, "/completion", bodies), 10, ENOUGH)) >= 1
    reply = strict.complete(prefix + [1], n_predict=1, pool_id=pool_id)
    assert reply["opencoti"]["cache_n"] == 120


def test_a_chat_victim_ends_with_finish_reason_length_and_the_reason(strict: Api) -> None:
    bodies = [
        {
            "messages": [{"role": "user", "content": f"Count from {start} to 9999."}],
            "max_tokens": ENOUGH,
            "ignore_eos": True,
            "temperature": 0,
            "session_id": f"counter {start}",
            "session_end": True,
        }
        for start in STARTS
    ]
    answers = run_all(strict, "/v1/chat/completions", bodies)
    assert all(answer.error is None and answer.done_seen for answer in answers)
    assert {answer.finish_reason for answer in answers} == {"length"}
    victims = [a for a in answers if a.last["opencoti"].get("stop_reason") == "kv_exhausted"]
    assert 1 <= len(victims) <= 3
    assert all(victim.text for victim in victims)


def test_a_client_that_leaves_while_its_stream_waits_frees_it(small: Api) -> None:
    bodies = [greedy(counting(start, 10), WANTED, stream=True) for start in STARTS]
    exchanges = [small.open("/completion", {**body, "ignore_eos": True}) for body in bodies]
    parked = "opencoti_polykv:num_requests_parked"
    eventually(lambda: small.metrics()[parked] > 0, "a parked stream")
    for exchange in exchanges:
        exchange.drop()
    eventually_equal(lambda: small.metrics()[parked], 0, "parked streams")
    assert small.metrics()["opencoti_polykv:parked_bytes"] == 0


def test_idle_sessions_make_room_and_come_back_without_a_prefill(small: Api) -> None:
    firsts = [small.complete(counting(100, 50), n_predict=4, session_id=f"i {n}") for n in range(4)]
    before = counters(small)
    reply = small.complete(counting(600, 10), n_predict=250, ignore_eos=True)
    assert reply["truncated"] is False
    assert reply["tokens_predicted"] == 250
    assert grown(small, before)["sessions_saved"] >= 1
    again = small.complete(
        counting(100, 50) + firsts[0]["content"] + counting(1, 2), n_predict=4, session_id="i 0"
    )
    assert again["timings"]["cache_n"] >= firsts[0]["tokens_evaluated"]
    assert grown(small, before)["sessions_restored"] >= 1


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


def test_a_window_that_is_full_before_the_count_says_so_makes_the_newest_wait(
    start_server: StartServer, window_model: Path, document: str
) -> None:
    """A window's cells that two sequences share are not written anew when both are past them."""
    api = Api(start_server("-m", str(window_model), *WINDOW_FLAGS).base_url)
    n_prompt, n_predict = WINDOW_CELLS - 60, 120
    prompt = api.tokens(document)[:n_prompt]
    body = {"prompt": prompt, "max_tokens": n_predict, "temperature": 0, "ignore_eos": True}
    before = counters(api)
    answer = api.post("/v1/completions", {**body, "n": 2})
    assert n_prompt + 2 * n_predict < 4096 // 2, "there was room by the count"
    after = grown(api, before)
    assert after["parked"] >= 1
    assert after["resumed"] == after["parked"]
    assert after["kv_exhausted"] == 0
    alone = api.complete(prompt, n_predict, ignore_eos=True, n_probs=2, cache_prompt=False)
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "length"
        assert_as_alone(choice["text"], alone)
