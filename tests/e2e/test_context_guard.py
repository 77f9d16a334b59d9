"""A context that is full where cells are shared: it ends, and what is shared stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import StartServer
from harness.server import ServerProcess
from servers import Servers
from support import Api, counting

FLAGS = ("-c", "4096", "--parallel", "1", "--context-shift")
N_CTX = 4096
N_STORY = 3900  # tokens: the wall is near


@pytest.fixture(scope="module")
def server(servers: Servers, server_binary: Any) -> ServerProcess:
    return servers.start(server_binary, FLAGS)


@pytest.fixture
def guarded(server: ServerProcess) -> Api:
    api = Api(server.base_url)
    api.clear()
    return api


@pytest.fixture
def story(guarded: Api, document: str) -> list[int]:
    return guarded.tokens(document)[:N_STORY]


def assert_ends_at_the_wall(answer: Any, n_ctx: int = N_CTX) -> None:
    assert answer["truncated"] is True
    assert answer["stop_type"] == "limit"
    assert answer["tokens_cached"] == n_ctx - 1
    assert answer["opencoti"]["ctx_headroom_tokens"] <= 1


def test_the_boot_log_warns(server: ServerProcess) -> None:
    log = server.log_path.read_text(errors="replace")
    assert "--context-shift" in log and "pool" in log


def assert_guarded(api: Api, story: list[int], **attach: Any) -> None:
    """One that shares the story ends at the wall, and what it shares is as before."""
    question = story + api.tokens(counting(5))
    before = api.complete(question, 8, **attach)
    assert before["opencoti"]["cache_n"] == len(story)
    assert_ends_at_the_wall(api.complete(question, N_CTX, ignore_eos=True, **attach))
    after = api.complete(question, 8, **attach)
    assert after["opencoti"]["cache_n"] == len(story)
    assert after["content"] == before["content"]


def test_sharers_of_pools_end_and_what_they_share_is_unchanged(
    guarded: Api, story: list[int]
) -> None:
    pool = guarded.create_pool(tokens=story)
    assert_guarded(guarded, story, pool_id=pool["pool_id"])
    main = guarded.complete(story + story[:1], 1, pool_id=pool["pool_id"], session_id="main")
    snapshot = guarded.create_pool(from_session="main")
    assert snapshot["prefix_len"] == main["tokens_cached"]
    assert_guarded(guarded, story + story[:1], pool_id=snapshot["pool_id"])
    tokens = guarded.get(f"/polykv/pools/{pool['pool_id']}")["prefix_len"]
    assert tokens == len(story)


def test_sharers_of_a_slot_end_and_a_plain_request_shifts(guarded: Api, story: list[int]) -> None:
    guarded.complete(story, 1, id_slot=0)
    assert_guarded(guarded, story, shared_pool_slot=0)
    guarded.clear()
    answer = guarded.complete(story, N_CTX - N_STORY + 60, ignore_eos=True)
    assert answer["tokens_predicted"] == N_CTX - N_STORY + 60
    assert answer["truncated"] is True


def test_choices_that_share_their_prompt_end(start_server: StartServer) -> None:
    api = Api(start_server("-c", "512", "--parallel", "2", "--context-shift").base_url)
    body = {"prompt": "Once", "max_tokens": 600, "n": 2, "temperature": 0, "ignore_eos": True}
    answer = api.post("/v1/completions", {**body, "session_id": "both"})
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "length"]
    assert answer["usage"]["completion_tokens"] <= 512
