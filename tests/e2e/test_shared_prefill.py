"""Many agents, one prefix: it is computed once, and a client that leaves disturbs nobody.

What a test acts in the middle of takes seconds to compute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest
from harness.client import Completion
from harness.server import ServerProcess
from support import (
    Api,
    counted,
    counting,
    eventually,
    eventually_equal,
    greedy,
    read_tokens,
)

COLD_PREFIX = 1000  # long enough for others to come while it is computed
PREFIX = 200
BYSTANDER_START = 100
BYSTANDER_TOKENS = 160
FLAGS = ("-c", "8192", "-np", "4", "--kv-unified", "--metrics", "--slots")


@pytest.fixture
def prefix(api: Api, document: str) -> list[int]:
    return api.tokens(document)[:PREFIX]


@pytest.fixture
def pool_id(api: Api, prefix: list[int]) -> int:
    return api.create_pool(tokens=prefix, pin=True)["pool_id"]


def agent_body(api: Api, prefix: list[int], pool_id: int, start: int, n: int) -> dict[str, Any]:
    """A pooled request that counts on from `start` + 30 for `n` tokens."""
    prompt = prefix + api.tokens(counting(start))
    return greedy(prompt, n, pool_id=pool_id, ignore_eos=True, stream=True)


class Bystander:
    """A pooled stream that runs during a test and must not notice what happens to others."""

    _alone: ClassVar[dict[str, str]] = {}  # by server, the text that it gives when alone

    def __init__(self, api: Api, prefix: list[int], pool_id: int) -> None:
        self._api = api
        body = agent_body(api, prefix, pool_id, BYSTANDER_START, BYSTANDER_TOKENS)
        if api.base_url not in self._alone:
            self._alone[api.base_url] = api.follow("/completion", body).text
        self._executor = ThreadPoolExecutor(1)
        self._future = self._executor.submit(api.follow, "/completion", body)
        self.most_cells = len(body["prompt"]) - len(prefix) + BYSTANDER_TOKENS
        eventually(lambda: self.is_running, "the bystander runs")

    @property
    def is_running(self) -> bool:
        slots = self._api.get("/slots")
        return not self._future.done() and any(slot["is_processing"] for slot in slots)

    def assert_undisturbed(self) -> None:
        """Waits for the stream's end: its text is the one it gives alone, and the right one."""
        result: Completion = self._future.result()
        self._executor.shutdown()
        assert result.error is None
        assert result.text == self._alone[self._api.base_url]
        assert result.text.startswith(counted(BYSTANDER_START + 30, 25))
        assert result.last["tokens_predicted"] == BYSTANDER_TOKENS


def n_sessions(api: Api, pool_id: int) -> int:
    return len(api.pool(pool_id)["sessions"])


def waiting_requests(api: Api) -> float:
    return api.metrics()["opencoti_polykv:num_requests_waiting"]


def assert_only_the_pool_is_left(api: Api, before: int) -> None:
    """`before` is the number of cells when the pool, but no request, was there."""
    eventually_equal(api.cells_used, before, "cells when all requests have ended")
    assert api.get("/polykv/pools")["pools"][0]["sessions"] == []
    assert api.sessions() == {}


def test_four_agents_at_once_on_a_cold_server_compute_the_prefix_once(
    start_server: Callable[..., ServerProcess], document: str
) -> None:
    api = Api(start_server(*FLAGS).base_url)
    prefix = api.tokens(document)[:COLD_PREFIX]
    reply = api.send("POST", "/polykv/pools", {"tokens": prefix, "wait": False})
    assert reply.status == 202
    pool_id = reply.json["pool_id"]
    bodies = [agent_body(api, prefix, pool_id, start, 40) for start in (100, 300, 500, 700)]
    with ThreadPoolExecutor(4) as executor:
        answers = list(executor.map(lambda body: api.follow("/completion", body), bodies))

    assert [answer.last["opencoti"]["cache_n"] for answer in answers] == [COLD_PREFIX] * 4
    for start, answer in zip((100, 300, 500, 700), answers, strict=True):
        assert answer.text.startswith(counted(start + 30, 6))
    suffixes = sum(len(body["prompt"]) - COLD_PREFIX for body in bodies)
    assert sum(answer.timings["prompt_n"] for answer in answers) == suffixes
    assert api.pool(pool_id)["n_prefilled"] == COLD_PREFIX
    metrics = api.metrics()
    assert metrics["llamacpp:prompt_tokens_total"] in (suffixes, COLD_PREFIX + suffixes)
    assert metrics["opencoti_polykv:pool_prefilled_tokens_total"] == COLD_PREFIX
    assert metrics["opencoti_polykv:prefix_cache_hit_tokens_total"] == 4 * COLD_PREFIX
    assert api.cells_used() == COLD_PREFIX


def test_a_fifth_agent_that_comes_while_four_decode_shares_the_prefix(
    start_server: Callable[..., ServerProcess], document: str
) -> None:
    api = Api(start_server("-c", "8192", "-np", "5", "--kv-unified", "--slots").base_url)
    prefix = api.tokens(document)[:PREFIX]
    pool_id = api.create_pool(tokens=prefix)["pool_id"]
    with ThreadPoolExecutor(4) as executor:
        running = [
            executor.submit(
                api.follow, "/completion", agent_body(api, prefix, pool_id, start, 150)
            )
            for start in (100, 300, 500, 700)
        ]

        def all_decode() -> bool:
            slots = [slot for slot in api.get("/slots") if slot["is_processing"]]
            return len(slots) == 4 and all(s["next_token"][0]["n_decoded"] > 1 for s in slots)

        eventually(all_decode, "four agents decode")
        fifth = api.follow("/completion", agent_body(api, prefix, pool_id, 200, 20))
        assert not any(future.done() for future in running)
    assert fifth.last["opencoti"]["cache_n"] == PREFIX
    assert fifth.text.startswith(counted(230, 3))
    for start, future in zip((100, 300, 500, 700), running, strict=True):
        assert future.result().text.startswith(counted(start + 30, 20))


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_while_decoding_frees_its_cells(
    api: Api, prefix: list[int], pool_id: int, stream: bool
) -> None:
    before = len(prefix)  # nothing but the pool
    bystander = Bystander(api, prefix, pool_id)
    prompt = prefix + api.tokens(counting(500, 60))
    body = greedy(prompt, 4000, pool_id=pool_id, ignore_eos=True, stream=stream)
    with api.open("/completion", body) as exchange:
        if stream:
            read_tokens(exchange, 5)
        else:
            eventually(lambda: decoded_tokens(api) > 4, "both decode")
        assert n_sessions(api, pool_id) == 2
    eventually_equal(lambda: n_sessions(api, pool_id), 1, "sessions after one has left")
    assert bystander.is_running
    assert api.cells_used() <= before + bystander.most_cells
    bystander.assert_undisturbed()
    assert_only_the_pool_is_left(api, before)


def decoded_tokens(api: Api) -> int:
    """The fewest tokens that any of two running requests has decoded; 0 unless two run."""
    slots = [slot for slot in api.get("/slots") if slot["is_processing"]]
    return min(s["next_token"][0]["n_decoded"] for s in slots) if len(slots) == 2 else 0


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_while_its_prompt_is_computed_frees_its_cells(
    api: Api, prefix: list[int], pool_id: int, document: str, stream: bool
) -> None:
    before = len(prefix)  # nothing but the pool
    bystander = Bystander(api, prefix, pool_id)
    prompt = prefix + api.tokens(document)[2000:3500]
    with api.open("/completion", greedy(prompt, 8, pool_id=pool_id, stream=stream)):
        # Cells beyond what the bystander can ever hold are the long prompt's.
        over = before + bystander.most_cells
        eventually(lambda: api.cells_used() > over, "the long prompt is being computed")
        assert n_sessions(api, pool_id) == 2
    eventually_equal(lambda: n_sessions(api, pool_id), 1, "sessions after one has left")
    assert api.cells_used() <= before + bystander.most_cells
    bystander.assert_undisturbed()
    assert_only_the_pool_is_left(api, before)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_the_queue_is_never_served(
    start_server: Callable[..., ServerProcess], document: str, stream: bool
) -> None:
    flags = ("-c", "8192", "-np", "1", "--kv-unified", "--metrics", "--slots")
    api = Api(start_server(*flags).base_url)
    prefix = api.tokens(document)[:PREFIX]
    pool_id = api.create_pool(tokens=prefix, pin=True)["pool_id"]
    before = len(prefix)  # nothing but the pool
    bystander = Bystander(api, prefix, pool_id)
    queued = {**agent_body(api, prefix, pool_id, 500, 4000), "stream": stream}

    with api.open("/completion", queued):
        eventually_equal(lambda: waiting_requests(api), 1, "requests in the queue")
    eventually_equal(lambda: waiting_requests(api), 0, "requests after the client has left")
    assert bystander.is_running
    bystander.assert_undisturbed()
    assert_only_the_pool_is_left(api, before)
    # The bystander's tokens, alone and beside the queue, and not one of the request that left.
    predicted = api.metrics()["llamacpp:tokens_predicted_total"]
    assert predicted in (BYSTANDER_TOKENS, 2 * BYSTANDER_TOKENS)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_while_its_pool_is_computed_leaves_the_pool_to_others(
    api: Api, prefix: list[int], pool_id: int, document: str, stream: bool
) -> None:
    before = len(prefix)  # nothing but the pool
    bystander = Bystander(api, prefix, pool_id)
    long_prefix = api.tokens(document)[1000:4500]
    reply = api.send("POST", "/polykv/pools", {"tokens": long_prefix, "wait": False})
    new_pool = reply.json["pool_id"]
    body = {**agent_body(api, long_prefix, new_pool, 500, 4000), "stream": stream}
    with api.open("/completion", body):
        eventually_equal(lambda: n_sessions(api, new_pool), 1, "sessions that wait for the pool")
        assert api.pool(new_pool)["residency"] == "materializing"
    eventually_equal(lambda: n_sessions(api, new_pool), 0, "sessions after the client has left")
    assert api.pool(new_pool)["residency"] == "materializing"
    eventually(lambda: api.pool(new_pool)["residency"] == "resident", "the pool is resident")
    assert api.pool(new_pool)["n_prefilled"] == len(long_prefix)
    bystander.assert_undisturbed()
    eventually_equal(api.cells_used, before + len(long_prefix), "cells of the two pools")
    other = api.complete(long_prefix + [1], n_predict=1, pool_id=new_pool)
    assert other["opencoti"]["cache_n"] == len(long_prefix)


def test_many_clients_that_come_and_go_leave_nothing(
    api: Api, prefix: list[int], pool_id: int
) -> None:
    before = len(prefix)  # nothing but the pool
    ids_before = api.get("/polykv/pools")["seq_ids_used"]
    bystander = Bystander(api, prefix, pool_id)
    for number in range(12):
        body = agent_body(api, prefix, pool_id, 50 * number, 4000)
        with api.open("/completion", body):
            time.sleep(0.03 * (number % 4))  # leaves in whatever state it is in
    bystander.assert_undisturbed()
    assert_only_the_pool_is_left(api, before)
    assert api.get("/polykv/pools")["seq_ids_used"] == ids_before
