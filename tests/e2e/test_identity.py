"""A request that names no pool and no session gets what llama-server gives, with the same flags.

Every request goes to both servers one at a time and in the same order, so that their caches are in
the same state, and the answers are compared byte for byte (identity.py says what is left out).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import TOOL_TEMPLATE
from harness import client
from harness.client import Reply
from identity import difference, shown, without_chances
from identity_requests import REQUESTS, Request, chat, native, openai
from servers import Servers
from support import TIMEOUT_S, Api

# As many cells as all slots fill: whose cells are given up for others is not compared.
FLAGS = ("-c", "1536", "-np", "4", "--kv-unified", "--seed", "1", "--slots", "--metrics")


class Deviation(NamedTuple):
    """What ours does otherwise on purpose: `peer` and `ours` make the texts equal again."""

    why: str
    requests: frozenset[str]
    peer: Callable[[str], str] = str
    ours: Callable[[str], str] = str


def as_client_fault(text: str) -> str:
    text = re.sub(r"^500 ", "400 ", text)
    return text.replace('"code":500', '"code":400').replace("server_error", "invalid_request_error")


def without_message(text: str) -> str:
    return re.sub(r'"message":"(?:[^"\\]|\\.)*"', '"message":"*"', as_client_fault(text))


def without_null_chunks(text: str) -> str:
    return text.replace("data: null\n\n", "")


def without_slot_fields(text: str) -> str:
    return re.sub(r',"pool_id":null,.*?"ctx_headroom_tokens":\d+', "", text)


DEVIATIONS = (
    Deviation(
        "A client's fault is a 400, not a 500: clients repeat what ended in a 500.",
        frozenset({
            "no messages, messages", "message without role", "tools of text",
            "tool of another kind", "schema and grammar", "no JSON", "JSON cut off", "no body",
        }),
        peer=as_client_fault,
    ),
    Deviation(
        "The message names the field; llama-server's names a function of its JSON library.",
        frozenset({
            "tokenize a number", "detokenize text", "JSON of a list", "JSON of text",
            "infill without prefix", "infill without suffix",
        }),
        peer=without_message,
        ours=without_message,
    ),
    Deviation(
        "No chunk is null: OpenAI's own client fails on one.",
        frozenset({"two prompts, streamed", "openai prompts, streamed"}),
        peer=without_null_chunks,
    ),
    Deviation(
        "What pools and sessions add to a slot.",
        frozenset({"slots"}),
        ours=without_slot_fields,
    ),
)


class Pair(NamedTuple):
    ours: Api
    peer: Api

    def send(self, request: Request) -> tuple[Reply, Reply]:
        ours, peer = (api.send(request.method, request.path, request.body) for api in self)
        return ours, peer


@pytest.fixture(scope="module")
def start_pair(
    servers: Servers, server_binary: Path, peer_binary: Path
) -> Iterator[Callable[..., Pair]]:
    """Starts both servers, fresh, with the same flags."""
    started = []

    def start(*flags: str) -> Pair:
        started.extend(servers.start(binary, flags) for binary in (server_binary, peer_binary))
        return Pair(*(Api(server.base_url) for server in started[-2:]))

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="module", params=["SmolLM2", "tiny"])
def pair(
    request: pytest.FixtureRequest,
    start_pair: Callable[..., Pair],
    tiny_models: Path,
    llama_source: Path,
) -> Pair:
    """On the default model, and on a tiny one that calls tools and fills gaps."""
    if request.param == "SmolLM2":
        return start_pair(*FLAGS)
    model = str(tiny_models / "tiny-starcoder.gguf")
    template = str(llama_source / TOOL_TEMPLATE)
    return start_pair("-m", model, "--chat-template-file", template, *FLAGS)


@pytest.mark.parametrize("request_", REQUESTS, ids=[request.name for request in REQUESTS])
def test_the_answer_is_the_same_byte_for_byte(pair: Pair, request_: Request) -> None:
    ours, peer = map(shown, pair.send(request_))
    for deviation in DEVIATIONS:
        if request_.name in deviation.requests:
            ours, peer = deviation.ours(ours), deviation.peer(peer)
    if ours != peer:
        pytest.fail(f"{request_}\n{difference(ours, peer)}", pytrace=False)


@pytest.mark.parametrize(
    "body",
    [
        native("Twice the same", 8, n_probs=3),
        native("Twice the same", 8, n_probs=3, stream=True),
        native("JSON:", 24, json_schema={"type": "object"}, temperature=0.8, seed=3),
    ],
    ids=["whole", "streamed", "seeded"],
)
def test_two_equal_runs_give_the_same_bytes(pair: Pair, body: dict[str, Any]) -> None:
    request = Request("", "/completion", {**body, "cache_prompt": False})
    first, second = (shown(pair.ours.send("POST", request.path, request.body)) for _ in range(2))
    slot = re.compile(r'"id_slot":\d')
    assert slot.sub("", first) == slot.sub("", second)


def test_a_form_is_read_as_json(pair: Pair) -> None:
    part = b'--x\r\nContent-Disposition: form-data; name="content"\r\n\r\n%b\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    for contents in ([b"Hello there"], [b"Hello", b"there"]):
        body = b"".join(part % content for content in contents) + b"--x--\r\n"
        ours, peer = (api.send("POST", "/tokenize", body, headers) for api in pair)
        assert ours.status == peer.status == 200
        assert shown(ours) == shown(peer)


def test_props_are_the_same_but_for_the_new_block(pair: Pair) -> None:
    ours, peer = map(shown, pair.send(Request("", "/props", None, "GET")))
    head, block = ours.split(',"opencoti":')
    new, end = json.JSONDecoder().raw_decode(block)
    assert list(new) == ["polykv"]
    assert not difference(head + block[end:], peer)


def test_metrics_have_all_of_llama_servers_series(pair: Pair) -> None:
    ours, peer = (api.metrics() for api in pair)
    assert set(peer) <= set(ours)


@pytest.fixture(scope="module")
def split_pair(start_pair: Callable[..., Pair]) -> Pair:
    """llama-server gives each of two slots half of the cells."""
    return start_pair("-c", "512", "-np", "2", "--seed", "1")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", native("Split and", 12, n_probs=4)),
        ("/completion", native("Split and", 12, n_probs=4, post_sampling_probs=True, stream=True)),
        ("/completion", native(["A cat", "A dog"], 8)),
        ("/completion", native("Split and then again", 12, id_slot=1, n_probs=2)),
        ("/v1/completions", openai("Green is a", 8, logprobs=3, stream=True)),
        ("/v1/chat/completions", chat(n=12, logprobs=True, top_logprobs=3)),
        ("/v1/chat/completions", chat(n=12, stream=True)),
        ("/completion", native([504] * 256, 1)),
        ("/completion", native([504] * 244, -1, ignore_eos=True, id_slot=0)),
    ],
    ids=["native", "native after sampling", "prompts", "slot", "openai", "chat", "chat streamed",
         "too long", "until the context is full"],
)
def test_where_llama_server_splits_text_is_the_same_and_chances_nearly(
    split_pair: Pair, path: str, body: dict[str, Any]
) -> None:
    replies = split_pair.send(Request("", path, body))
    (ours, our_chances), (peer, peer_chances) = map(without_chances, map(shown, replies))
    assert not difference(ours, peer)
    assert our_chances == pytest.approx(peer_chances, abs=1e-3)


def test_an_uneven_split_of_the_context_shows_what_llama_server_shows(
    start_pair: Callable[..., Pair],
) -> None:
    """With -np and no --kv-unified a plain request sees its slot's part of the context."""
    pair = start_pair("-c", "1000", "-np", "3")
    n_ctx = [api.get("/props")["default_generation_settings"]["n_ctx"] for api in pair]
    ours, peer = map(shown, pair.send(Request("", "/completion", native([504] * n_ctx[0], 1))))
    assert n_ctx[0] == n_ctx[1] < 1000
    assert ours == peer
