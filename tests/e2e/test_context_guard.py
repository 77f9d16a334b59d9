"""A context that is full where cells are shared: it ends, and what is shared stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from harness.server import ServerProcess
from servers import Servers
from support import Api, counting, greedy

FLAGS = ("-c", "1024", "-np", "2", "--kv-unified", "--context-shift", "--cache-ram", "0")
STORY = "Once upon a time there was a lighthouse keeper who counted the waves. " * 8


@pytest.fixture(scope="module")
def server(servers: Servers, server_binary: Any) -> ServerProcess:
    return servers.start(server_binary, FLAGS)


@pytest.fixture
def guarded(server: ServerProcess) -> Api:
    api = Api(server.base_url)
    api.clear()
    return api


def assert_ends_at_the_wall(answer: Any, n_ctx: int = 1024) -> None:
    assert answer["truncated"] is True
    assert answer["stop_type"] == "limit"
    assert answer["tokens_cached"] == n_ctx - 1
    assert answer["opencoti"]["ctx_headroom_tokens"] <= 1


def test_the_boot_log_warns(server: ServerProcess) -> None:
    log = server.log_path.read_text(errors="replace")
    assert "--context-shift" in log and "pool" in log


@pytest.mark.parametrize("how", ["pool", "snapshot", "slot"])
def test_sharers_end_and_what_they_share_is_unchanged(guarded: Api, how: str) -> None:
    story = guarded.tokens(STORY)
    attach: dict[str, Any]
    if how == "pool":
        attach = {"pool_id": guarded.create_pool(tokens=story)["pool_id"]}
    elif how == "snapshot":
        guarded.complete(story, 1, session_id="main")
        attach = {"pool_id": guarded.create_pool(from_session="main")["pool_id"]}
    else:
        guarded.complete(story, 1, id_slot=0)
        attach = {"shared_pool_slot": 0, "id_slot": 1}
    question = story + guarded.tokens(counting(5))
    before = guarded.post("/completion", greedy(question, 8, **attach))
    assert before["opencoti"]["cache_n"] == len(story)
    long = guarded.post("/completion", greedy(question, 3000, ignore_eos=True, **attach))
    assert_ends_at_the_wall(long)
    after = guarded.post("/completion", greedy(question, 8, **attach))
    assert after["opencoti"]["cache_n"] == before["opencoti"]["cache_n"]
    assert after["content"] == before["content"]


def test_choices_that_share_their_prompt_end(guarded: Api) -> None:
    body = {"prompt": STORY, "max_tokens": 3000, "n": 2, "temperature": 0, "ignore_eos": True}
    answer = guarded.post("/v1/completions", {**body, "session_id": "both"})
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["length", "length"]
    assert answer["usage"]["completion_tokens"] < 1100


def test_a_plain_request_shifts_when_the_pools_are_gone(guarded: Api) -> None:
    story = guarded.tokens(STORY)
    pool = guarded.create_pool(tokens=story)
    guarded.complete(story + [1], 2, pool_id=pool["pool_id"])
    guarded.release(pool["pool_id"])
    answer = guarded.complete(STORY, 1200, ignore_eos=True)
    assert answer["tokens_predicted"] == 1200
    assert answer["truncated"] is True
