"""POST /v1/chat/completions/control ends a model's thinking; next to the pinned llama-server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness.client import Exchange
from servers import Servers
from support import Api, assert_problem

CHAT = "/v1/chat/completions"
CONTROL = f"{CHAT}/control"
MESSAGES = [{"role": "user", "content": "Tell me about the moon."}]


class Pair(NamedTuple):
    ours: Api
    peer: Api


@pytest.fixture(scope="module")
def pair(servers: Servers, server_binary: Path, peer_binary: Path, llama_source: Path) -> Pair:
    """Both servers with a template that opens the thinking by itself."""
    template = llama_source / "models/templates/Qwen-QwQ-32B.jinja"
    flags = ("-c", "2048", "-np", "2", "--kv-unified", "--chat-template-file", str(template))
    return Pair(*(Api(servers.start(b, flags).base_url) for b in (server_binary, peer_binary)))


def think(api: Api, max_tokens: int, **fields: Any) -> Exchange:
    body = {"messages": MESSAGES, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    return api.open(CHAT, {**body, **fields, "stream": True})


def read(exchange: Exchange, api: Api, end_after: int | None) -> tuple[str, str, Any]:
    """Thoughts, answer and the reply to a control request after so many chunks with a thought."""
    thoughts, answer, reply, n_thoughts = "", "", None, 0
    for event in exchange.events():
        if event.data is None or not event.data["choices"]:
            continue
        delta = event.data["choices"][0]["delta"]
        thoughts += delta.get("reasoning_content") or ""
        answer += delta.get("content") or ""
        n_thoughts += "reasoning_content" in delta
        if reply is None and n_thoughts == end_after:
            reply = api.post(CONTROL, {"id": event.data["id"], "action": "reasoning_end"})
    return thoughts, answer, reply


def test_thinking_ends_on_demand(pair: Pair) -> None:
    undisturbed = []
    for api in pair:
        with think(api, 160) as exchange:
            thoughts, answer, _ = read(exchange, api, None)
        assert answer == ""  # this model does not end its thinking by itself
        undisturbed.append(thoughts)
        with think(api, 160, reasoning_control=True) as exchange:
            cut, answer, reply = read(exchange, api, 5)
        assert reply == {"success": True}
        assert answer
        assert cut
        assert thoughts.startswith(cut.rstrip())
        assert len(cut) < len(thoughts) / 2
    assert undisturbed[0] == undisturbed[1]


def test_a_completion_that_did_not_ask_for_control_goes_on(pair: Pair) -> None:
    for api in pair:
        with think(api, 20) as exchange:
            _, answer, reply = read(exchange, api, 5)
        assert reply == {
            "success": False,
            "message": "reasoning control not enabled for this completion",
        }
        assert answer == ""


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "chatcmpl-unknown"},
        {"id": "chatcmpl-unknown", "action": "reasoning_begin"},
        {"id": 7, "action": "reasoning_end"},
        {"id": "chatcmpl-unknown", "action": "reasoning_end"},
    ],
)
def test_other_requests_are_answered_as_by_llama_server(pair: Pair, body: dict[str, Any]) -> None:
    ours, peer = (api.send("POST", CONTROL, body) for api in pair)
    assert (ours.status, ours.json) == (peer.status, peer.json)


def test_a_body_that_is_no_json_is_refused(pair: Pair) -> None:
    assert_problem(pair.ours.send("POST", CONTROL, b"{"), 400)
