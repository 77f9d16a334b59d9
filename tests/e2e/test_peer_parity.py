"""A request that names no pool and no session gets what llama-server gives, with the same flags.

Every request goes to both servers one at a time and in the same order, so that their caches are in
the same state. Ids, times and durations are left out of the comparison.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness import client
from servers import Servers
from support import TIMEOUT_S, Api, assert_problem, greedy
from test_completions import LIGHT_TOOL, SCHEMA

# Without the host cache, so that only the slots' own caches count.
FLAGS = ("-c", "2048", "-np", "4", "--kv-unified", "--slots", "--metrics", "--cache-ram", "0")

VOLATILE = {
    "id",
    "created",
    "timings",
    "system_fingerprint",
    "build_info",
    "id_task",
    "id_slot",
    "media_marker",
}

STORY = "The old lighthouse keeper looked at the sea and"
MOON = [{"role": "user", "content": "Tell me about the moon."}]
POET = [
    {"role": "system", "content": "You are a poet."},
    {"role": "user", "content": "Describe a river."},
    {"role": "assistant", "content": "A river sings."},
    {"role": "user", "content": "And a mountain?"},
]

REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("native", "/completion", greedy(STORY, 24)),
    ("native again, cached", "/completion", greedy(STORY, 24)),
    ("native with tokens", "/completion", greedy("Two plus two is", 8, return_tokens=True)),
    ("token ids", "/completion", greedy([504, 3575, 282, 4649], 8)),
    ("mixed ids and text", "/completion", greedy([504, 3575, " of Spain is"], 8)),
    ("several prompts", "/completion", greedy(["A cat", "A dog"], 6)),
    ("probabilities", "/completion", greedy("Water boils at", 6, n_probs=3)),
    ("seeded", "/completion", {**greedy("Dragons are", 12), "temperature": 0.9, "seed": 11}),
    ("schema", "/completion", greedy("JSON:", 64, json_schema=SCHEMA)),
    ("penalties", "/completion", greedy("la la la la", 12, repeat_penalty=1.5)),
    ("no token wanted", "/completion", greedy("Nothing to add", 0)),
    ("openai", "/v1/completions", {"prompt": "Green is a", "max_tokens": 8, "temperature": 0}),
    ("openai logprobs", "/v1/completions", {"prompt": "Blue", "max_tokens": 3, "logprobs": 2,
                                            "temperature": 0}),
    ("chat", "/v1/chat/completions", {"messages": MOON, "max_tokens": 24, "temperature": 0}),
    ("chat, several turns", "/v1/chat/completions", {"messages": POET, "max_tokens": 24,
                                                     "temperature": 0}),
    ("chat with tools", "/v1/chat/completions", {"messages": MOON, "tools": [LIGHT_TOOL],
                                                 "max_tokens": 12, "temperature": 0}),
    ("chat logprobs", "/v1/chat/completions", {"messages": MOON, "logprobs": True,
                                               "top_logprobs": 2, "max_tokens": 4,
                                               "temperature": 0}),
]

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
AUDIO = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
VIDEO = {"type": "input_video", "input_video": {"data": "AAAA"}}
ANTHROPIC_IMAGE = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
}

# (name, path, content of a user message)
MEDIA: list[tuple[str, str, Any]] = [
    ("image", "/v1/chat/completions", [IMAGE]),
    ("audio", "/v1/chat/completions", [{"type": "text", "text": "Hear:"}, AUDIO]),
    ("video", "/v1/chat/completions", [VIDEO]),
    ("image, template", "/apply-template", [IMAGE]),
    ("image, count", "/v1/chat/completions/input_tokens", [IMAGE]),
    ("image, anthropic", "/v1/messages", [ANTHROPIC_IMAGE]),
    ("image, anthropic count", "/v1/messages/count_tokens", [ANTHROPIC_IMAGE]),
    ("unheard", "/v1/chat/completions", [{"type": "smell"}]),
]


class Pair(NamedTuple):
    ours: Api
    peer: Api


@pytest.fixture(scope="module")
def pair(servers: Servers, server_binary: Path, peer_binary: Path) -> Pair:
    """Both servers, fresh, with the same flags."""
    return Pair(
        Api(servers.start(server_binary, FLAGS).base_url),
        Api(servers.start(peer_binary, FLAGS).base_url),
    )


def steady(value: Any) -> Any:
    """The value without its volatile fields, at every depth."""
    if isinstance(value, dict):
        return {name: steady(item) for name, item in value.items() if name not in VOLATILE}
    if isinstance(value, list):
        return [steady(item) for item in value]
    return value


@pytest.mark.parametrize(("path", "body"), [r[1:] for r in REQUESTS], ids=[r[0] for r in REQUESTS])
def test_the_whole_body_is_equal(pair: Pair, path: str, body: dict[str, Any]) -> None:
    ours, peer = (steady(api.post(path, body)) for api in pair)
    assert ours == peer


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", greedy("Streams flow to", 12)),
        ("/v1/completions", {"prompt": "Clouds are", "max_tokens": 12, "temperature": 0}),
        ("/v1/chat/completions", {"messages": MOON, "max_tokens": 12, "temperature": 0,
                                  "stream_options": {"include_usage": True}}),
    ],
    ids=["native", "openai", "chat"],
)
def test_every_stream_chunk_is_equal(pair: Pair, path: str, body: dict[str, Any]) -> None:
    ours, peer = (api.follow(path, body) for api in pair)
    assert [steady(chunk) for chunk in ours.chunks] == [steady(chunk) for chunk in peer.chunks]
    assert ours.done_seen == peer.done_seen


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", greedy([504] * 3000, 1)),
        ("/completion", greedy([504] * 3000, 1, stream=True)),
        ("/completion", {"n_predict": 1}),
        ("/completion", greedy([-1], 1)),
        ("/completion", greedy("a", 1, n=99)),
        ("/completion", greedy("a", 1, grammar="root ::= (")),
        ("/completion", greedy("a", "many")),
        ("/v1/chat/completions", {}),
        ("/v1/chat/completions", {"messages": MOON, "tool_choice": "sometimes"}),
    ],
    ids=["too long", "too long streamed", "no prompt", "bad token", "n", "grammar", "type",
         "no messages", "tool choice"],
)
def test_errors_that_llama_server_gives_as_400_are_equal_but_for_the_message(
    pair: Pair, path: str, body: dict[str, Any]
) -> None:
    ours, peer = (assert_problem(api.send("POST", path, body), 400) for api in pair)
    assert {**ours, "message": ""} == {**peer, "message": ""}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"content": "Hello <|im_end|> wörld", "parse_special": False}),
        ("/tokenize", {"content": "Hello <|im_end|>", "add_special": True, "with_pieces": True}),
        ("/detokenize", {"tokens": [504, 3575, 282, 2, 1]}),
        ("/apply-template", {"messages": POET, "tools": [LIGHT_TOOL]}),
    ],
)
def test_text_routes_are_equal(pair: Pair, path: str, body: dict[str, Any]) -> None:
    ours, peer = (api.post(path, body) for api in pair)
    assert ours == peer


def test_props_have_all_of_llama_servers_fields_with_its_values(pair: Pair) -> None:
    ours, peer = (steady(api.get("/props")) for api in pair)
    assert {name: ours.get(name) for name in peer} == peer


def test_models_are_equal(pair: Pair) -> None:
    ours, peer = (steady(api.get("/v1/models")) for api in pair)
    assert ours == peer


def test_metrics_have_all_of_llama_servers_series(pair: Pair) -> None:
    ours, peer = (api.metrics() for api in pair)
    assert set(peer) <= set(ours)


@pytest.mark.parametrize("flags", [("-c", "2048", "-np", "4"), ("-c", "1000", "-np", "3")])
def test_a_split_of_the_context_shows_what_llama_server_shows(
    servers: Servers, server_binary: Path, peer_binary: Path, flags: tuple[str, ...]
) -> None:
    """With -np and no --kv-unified a plain request sees its slot's part of the context."""
    shown = []
    for binary in (server_binary, peer_binary):
        server = servers.start(binary, flags)
        props = client.call(server.base_url, "GET", "/props", timeout_s=TIMEOUT_S)
        n_ctx = props["default_generation_settings"]["n_ctx"]
        refusal = Api(server.base_url).send("POST", "/completion", greedy([504] * n_ctx, 1))
        shown.append((n_ctx, refusal.status, refusal.json))
        server.stop()
    assert shown[0] == shown[1]
    assert shown[0][0] < 2048


@pytest.mark.parametrize(("path", "content"), [m[1:] for m in MEDIA], ids=[m[0] for m in MEDIA])
def test_media_are_refused_in_the_same_words(pair: Pair, path: str, content: Any) -> None:
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
    ours, peer = (api.send("POST", path, body) for api in pair)
    assert (ours.status, ours.json) == (peer.status, peer.json)
    assert_problem(ours, peer.status)


@pytest.mark.parametrize("path", ["/tools", "/cors-proxy"])
def test_what_is_off_is_refused_in_the_same_words(pair: Pair, path: str) -> None:
    for method, body in (("GET", None), ("POST", {})):
        ours, peer = (api.send(method, path, body) for api in pair)
        assert (ours.status, ours.body) == (peer.status, peer.body)
        assert ours.status == 403


def test_a_form_is_read_as_json(pair: Pair) -> None:
    part = b'--x\r\nContent-Disposition: form-data; name="content"\r\n\r\n%b\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    for contents in ([b"Hello there"], [b"Hello", b"there"]):
        body = b"".join(part % content for content in contents) + b"--x--\r\n"
        ours, peer = (api.send("POST", "/tokenize", body, headers) for api in pair)
        assert ours.status == peer.status == 200
        assert ours.json == peer.json
