"""--context-shift: a plain request goes on beyond its context, with llama-server's text."""

from __future__ import annotations

from typing import Any

import pytest
from harness import client
from servers import Servers
from support import Api, greedy

FLAGS = ("-c", "256", "-np", "1", "--context-shift", "--cache-ram", "0")
STORY = "Once upon a time there was a lighthouse keeper who counted the waves."


@pytest.fixture(scope="module")
def ours(servers: Servers, server_binary: Any) -> Api:
    return Api(servers.start(server_binary, FLAGS).base_url)


@pytest.fixture(scope="module")
def peer(servers: Servers, peer_binary: Any) -> Api:
    return Api(servers.start(peer_binary, FLAGS).base_url)


@pytest.mark.parametrize(
    "fields",
    [{}, {"n_keep": -1, "n_discard": 40}, {"n_keep": 1000}],
    ids=["half", "prompt kept", "all but four kept"],
)
def test_the_text_across_shifts_is_llama_servers(
    ours: Api, peer: Api, fields: dict[str, Any]
) -> None:
    """256 tokens of context, some 400 generated."""
    body = greedy(STORY, 400 if "n_discard" not in fields else 300, ignore_eos=True, **fields)
    answers = [api.post("/completion", body) for api in (ours, peer)]
    for answer in answers:
        assert answer["truncated"] is True
        assert answer["tokens_predicted"] == body["n_predict"]
    shown = ("content", "stop_type", "truncated", "tokens_cached", "tokens_evaluated")
    assert {name: answers[0][name] for name in shown} == {name: answers[1][name] for name in shown}


def test_a_session_ends_at_the_wall(ours: Api) -> None:
    answer = ours.post("/completion", greedy(STORY, 400, ignore_eos=True, session_id="wall"))
    assert answer["truncated"] is True
    assert answer["stop_type"] == "limit"
    assert answer["tokens_cached"] == 255
    assert client.chunk_text(answer)
