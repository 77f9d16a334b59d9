"""Streams with a conversation id: cut, resumed, looked up, stopped; next to the pinned llama-server."""

from __future__ import annotations

import itertools
import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from harness.client import Exchange
from harness.server import ServerProcess
from servers import Servers
from support import TIMEOUT_S, Api, assert_problem, eventually, greedy

FLAGS = ("-c", "4096", "-np", "2", "--kv-unified", "--slots", "--metrics")
CHAT = "/v1/chat/completions"
CHAT_BODY = {
    "messages": [{"role": "user", "content": "Tell me about the moon."}],
    "max_tokens": 5,
    "temperature": 0,
    "ignore_eos": True,
    "cache_prompt": False,
    "stream": True,
}
ENDLESS = greedy("Once upon a time", 3000, ignore_eos=True, stream=True)
VOLATILE = {"id", "created", "timings", "id_slot", "generation_settings"}

_numbers = itertools.count()


class Pair(NamedTuple):
    ours: Api
    peer: Api


@pytest.fixture
def pair(servers: Servers, server_binary: Path, peer_binary: Path) -> Pair:
    return Pair(*(Api(servers.shared(b, FLAGS).base_url) for b in (server_binary, peer_binary)))


@pytest.fixture
def ours(pair: Pair) -> Api:
    return pair.ours


@pytest.fixture
def conversation() -> str:
    """A conversation id that no other test has; with a slash, as model names have."""
    return f"conversation {next(_numbers)}::org/model"


def stream_path(conversation: str, start: int | None = None) -> str:
    path = "/v1/stream?conv_id=" + quote(conversation, safe="")
    return path if start is None else f"{path}&from={start}"


def start_stream(api: Api, conversation: str, body: Any, path: str = CHAT) -> Exchange:
    return api.open(path, body, {"X-Conversation-Id": conversation})


def resume(api: Api, conversation: str, start: int = 0) -> Exchange:
    return Exchange(api.base_url, "GET", stream_path(conversation, start), timeout_s=TIMEOUT_S)


def replay(api: Api, conversation: str, start: int = 0) -> bytes:
    """The stream's bytes from `start` to its end."""
    with resume(api, conversation, start) as exchange:
        assert exchange.head()[0] == 200
        assert exchange.head()[1]["content-type"] == "text/event-stream"
        return b"".join(exchange.parts())


def read_parts(exchange: Exchange, n_parts: int) -> bytes:
    return b"".join(itertools.islice(exchange.parts(), n_parts))


def steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: steady(item) for name, item in value.items() if name not in VOLATILE}
    if isinstance(value, list):
        return [steady(item) for item in value]
    return value


def masked(stream: bytes) -> list[Any]:
    """Every line of a stream, those with JSON without the volatile fields."""

    def line(text: str) -> Any:
        return steady(json.loads(text[len("data: ") :])) if text.startswith("data: {") else text

    return [line(text) for text in stream.decode("utf-8").split("\n")]


def is_idle(api: Api) -> bool:
    return not any(slot["is_processing"] for slot in api.get("/slots"))


def uncut(api: Api, body: Any, path: str = CHAT) -> bytes:
    with api.open(path, body) as exchange:
        return b"".join(exchange.parts())


def test_a_stream_cut_after_any_chunk_is_resumed_without_a_gap(
    pair: Pair, conversation: str
) -> None:
    expected = masked(uncut(pair.peer, CHAT_BODY))
    assert masked(uncut(pair.ours, CHAT_BODY)) == expected
    n_chunks = sum(isinstance(line, dict) for line in expected) + 1  # and [DONE]
    assert n_chunks >= 7
    for api in pair:
        for n_read in range(n_chunks + 1):
            with start_stream(api, conversation, CHAT_BODY) as exchange:
                exchange.head()
                head = read_parts(exchange, n_read)
            tail = replay(api, conversation, len(head))
            assert masked(head + tail) == expected, n_read
            assert replay(api, conversation) == head + tail


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completion", greedy("Clouds are", 6, stream=True)),
        ("/v1/completions", {"prompt": "Clouds are", "max_tokens": 6, "temperature": 0,
                             "stream": True}),
        ("/v1/messages", CHAT_BODY),
    ],
)
def test_every_route_that_streams_records(
    pair: Pair, conversation: str, path: str, body: dict[str, Any]
) -> None:
    shown = []
    for api in pair:
        with start_stream(api, conversation, body, path) as exchange:
            head = read_parts(exchange, 2)
        shown.append(masked(head + replay(api, conversation, len(head))))
    assert shown[0] == shown[1]


def test_a_stream_cut_while_its_prompt_is_computed_goes_on(
    pair: Pair, conversation: str, document: str
) -> None:
    tokens = pair.ours.tokens(document)[:400]
    body = greedy(tokens, 4, cache_prompt=False, stream=True)
    shown = []
    for api in pair:
        with start_stream(api, conversation, body, "/completion") as exchange:
            exchange.head()
        shown.append(masked(replay(api, conversation)))
    assert shown[0] == shown[1]
    assert any(isinstance(line, dict) and line.get("stop") for line in shown[0])


def test_readers_may_break_off_and_meet(ours: Api, conversation: str) -> None:
    """Cut twice, then read by two at once, then again after the end."""
    body = {**CHAT_BODY, "max_tokens": 40}
    with start_stream(ours, conversation, body) as exchange:
        head = read_parts(exchange, 3)
    with resume(ours, conversation, len(head)) as exchange:
        head += read_parts(exchange, 3)
    rests = ["", ""]

    def read(index: int) -> None:
        rests[index] = replay(ours, conversation, len(head)).decode()

    readers = [threading.Thread(target=read, args=(index,)) for index in range(2)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert rests[0] == rests[1]
    whole = head + rests[0].encode()
    assert whole.endswith(b"data: [DONE]\n\n")
    assert replay(ours, conversation) == whole
    assert replay(ours, conversation, len(whole)) == b""
    assert masked(whole) == masked(uncut(ours, body))


def test_a_stopped_stream_frees_its_slot_and_is_forgotten(pair: Pair, conversation: str) -> None:
    for api in pair:
        with start_stream(api, conversation, ENDLESS, "/completion") as exchange:
            read_parts(exchange, 2)
        with resume(api, conversation) as reader:
            read_parts(reader, 1)
            assert not is_idle(api)
            reply = api.send("DELETE", stream_path(conversation))
            assert (reply.status, reply.body) == (204, b"")
            for _ in reader.parts():  # the reader's stream ends
                pass
        eventually(lambda: is_idle(api), "the slot is free")
        assert_problem(api.send("GET", stream_path(conversation)), 404)
        assert api.send("DELETE", stream_path(conversation)).status == 204


def test_a_new_stream_of_the_conversation_ends_the_earlier_one(
    ours: Api, conversation: str
) -> None:
    with start_stream(ours, conversation, ENDLESS, "/completion") as first:
        read_parts(first, 2)
        with start_stream(ours, conversation, CHAT_BODY) as second:
            whole = b"".join(second.parts())
        for _ in first.parts():
            pass
    assert replay(ours, conversation) == whole
    eventually(lambda: is_idle(ours), "the slot is free")


def test_a_waiting_stream_can_be_stopped(ours: Api, conversation: str) -> None:
    running = [start_stream(ours, f"{conversation} {i}", ENDLESS, "/completion") for i in range(2)]
    for exchange in running:
        exchange.head()
    with start_stream(ours, conversation, CHAT_BODY) as waiting:
        eventually(lambda: lookup(ours, [conversation]), "the stream is known")
        ours.send("DELETE", stream_path(conversation))
        assert waiting.reply().body == b""
    for i, exchange in enumerate(running):
        ours.send("DELETE", stream_path(f"{conversation} {i}"))
        exchange.drop()
    eventually(lambda: is_idle(ours), "the slots are free")


def lookup(api: Api, conversations: list[Any]) -> Any:
    return api.post("/v1/streams/lookup", {"conversation_ids": conversations})


def test_lookup_tells_of_the_ids_that_it_is_asked_for(pair: Pair, conversation: str) -> None:
    name = conversation.partition("::")[0]
    shown = []
    for api in pair:
        with start_stream(api, conversation, CHAT_BODY) as exchange:
            n_bytes = sum(len(part) for part in exchange.parts())
        eventually(lambda: lookup(api, [name])[0]["is_done"], "the stream has ended")
        (entry,) = lookup(api, [name])
        assert lookup(api, [conversation, "unknown", 7, ""]) == [entry]
        assert lookup(api, []) == []
        assert entry["total_bytes"] == n_bytes
        assert 0 < entry["started_at"] <= entry["completed_at"]
        shown.append(list(entry))
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("method", "query", "status"),
    [
        ("GET", "", 400),
        ("DELETE", "", 400),
        ("GET", "?conv_id=unknown&from=0", 404),
        ("GET", "?conv_id=CONVERSATION&from=x", 400),
        ("GET", "?conv_id=CONVERSATION&from=99999999999999999999999", 400),
    ],
)
def test_what_cannot_be_resumed_is_refused_as_by_llama_server(
    pair: Pair, conversation: str, method: str, query: str, status: int
) -> None:
    query = query.replace("CONVERSATION", quote(conversation, safe=""))
    answers = []
    for api in pair:
        with start_stream(api, conversation, CHAT_BODY) as exchange:
            read_parts(exchange, 1)
        reply = api.send(method, "/v1/stream" + query)
        error = assert_problem(reply, status)
        # llama-server puts one message over every 404.
        answers.append({**error, "message": ""} if status == 404 else error)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_no_stream_leaves_nothing_behind(
    pair: Pair, conversation: str, stream: bool
) -> None:
    for api in pair:
        headers = {"X-Conversation-Id": conversation}
        prompt = [1] * 5000 if stream else "Hi"
        reply = api.send("POST", "/completion", greedy(prompt, 1, stream=stream), headers)
        assert reply.status == (400 if stream else 200)
        assert lookup(api, [conversation]) == []


@pytest.fixture
def draining_server(start_server: Callable[..., ServerProcess]) -> Iterator[ServerProcess]:
    yield start_server(*FLAGS, "--polykv-drain-ms", "200")


def test_a_stream_without_a_client_does_not_outlast_the_server(
    draining_server: ServerProcess, conversation: str
) -> None:
    api = Api(draining_server.base_url)
    with start_stream(api, conversation, ENDLESS, "/completion") as exchange:
        read_parts(exchange, 2)
    with resume(api, conversation) as reader:
        draining_server.send_signal(signal.SIGTERM)
        assert b'"error"' in b"".join(reader.parts())
    assert draining_server.process.wait(60) == 0
