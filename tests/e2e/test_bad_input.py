"""Bad requests get a clear 4xx and change nothing."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest
from support import Api, assert_problem

COMPLETION = "/completion"
CHAT = "/v1/chat/completions"
POOLS = "/polykv/pools"
OUTSIDE = 49152  # the vocabulary has the ids 0..49151
HI = [{"role": "user", "content": "Hi"}]


def prompt(**fields: Any) -> dict[str, Any]:
    return {"prompt": "Hello", "n_predict": 1, **fields}


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": HI, "max_tokens": 1, **fields}


NESTED = b"[" * 50_000 + b"]" * 50_000

MULTIPART = "multipart/form-data; boundary=x"

FORM = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n'

BROKEN_BODIES: dict[str, bytes] = {
    "nothing": b"",
    "not JSON": b"prompt=Hello",
    "cut off": b'{"prompt": "Hello", ',
    "trailing comma": b'{"prompt": "Hello",}',
    "bad UTF-8": b'{"prompt": "\xff\xfe", "messages": [], "tokens": [1]}',
    "overlong UTF-8": b'{"prompt": "\xc0\xaf", "messages": [], "tokens": [1]}',
    "lone surrogate": b'{"prompt": "\\ud800", "messages": "\\ud800", "tokens": "\\ud800"}',
    "an array": b"[1, 2, 3]",
    "a string": b'"Hello"',
    "a number": b"17",
    "null": b"null",
    "deep nesting": b'{"prompt": ' + b"[" * 100_000,
    "closed deep nesting": b'{"prompt": %b, "messages": %b, "content": %b}' % ((NESTED,) * 3),
}

# (name, path, body); the answer is 400.
BAD_REQUESTS: list[tuple[str, str, Any]] = [
    # Types.
    ("prompt number", COMPLETION, prompt(prompt=5)),
    ("prompt object", COMPLETION, prompt(prompt={"a": 1})),
    ("prompt null", COMPLETION, prompt(prompt=None)),
    ("no prompt", COMPLETION, {"n_predict": 1}),
    ("no prompt, openai", "/v1/completions", {"max_tokens": 1}),
    ("fractional token", COMPLETION, prompt(prompt=[1.5])),
    ("n_predict string", COMPLETION, prompt(n_predict="x")),
    ("stream string", COMPLETION, prompt(stream="yes")),
    ("temperature string", COMPLETION, prompt(temperature="hot")),
    ("samplers numbers", COMPLETION, prompt(samplers=[5])),
    ("schema of no type", COMPLETION, prompt(json_schema={"type": "nope"})),
    ("grammar cut off", COMPLETION, prompt(grammar="root ::= (")),
    ("no messages", CHAT, {}),
    ("messages string", CHAT, {"messages": "hi"}),
    ("message without role", CHAT, {"messages": [{"content": "a"}]}),
    ("message number", CHAT, {"messages": [5]}),
    ("content number", CHAT, {"messages": [{"role": "user", "content": 5}]}),
    ("tools string", CHAT, chat(tools="x")),
    ("tool choice", CHAT, chat(tool_choice="sometimes")),
    ("response format", CHAT, chat(response_format={"type": "x"})),
    ("tokenize number", "/tokenize", {"content": 5}),
    ("detokenize string", "/detokenize", {"tokens": "a"}),
    ("detokenize strings", "/detokenize", {"tokens": ["a"]}),
    ("template without messages", "/apply-template", {}),
    # Numbers out of range.
    ("n_predict -5", COMPLETION, prompt(n_predict=-5)),
    ("n 0", COMPLETION, prompt(n=0)),
    ("n beyond slots", COMPLETION, prompt(n=5)),
    ("repeat_last_n -2", COMPLETION, prompt(repeat_last_n=-2)),
    ("n_keep -2", COMPLETION, prompt(n_keep=-2)),
    ("n_cache_reuse -1", COMPLETION, prompt(n_cache_reuse=-1)),
    # Tokens outside the vocabulary.
    ("token beyond", COMPLETION, prompt(prompt=[1, OUTSIDE])),
    ("token negative", COMPLETION, prompt(prompt=[-1])),
    ("token huge", COMPLETION, prompt(prompt=[10**20])),
    ("token beyond 32 bits", COMPLETION, prompt(prompt=[2**32 + 1])),
    ("token beyond in a list", COMPLETION, prompt(prompt=[[1], [OUTSIDE]])),
    ("detokenize beyond", "/detokenize", {"tokens": [OUTSIDE]}),
    ("detokenize negative", "/detokenize", {"tokens": [-1]}),
    # Empty prompts.
    ("empty tokens", COMPLETION, prompt(prompt=[])),
    # Attaching.
    ("pool_id bool", COMPLETION, prompt(pool_id=True)),
    ("pool_id list", COMPLETION, prompt(pool_id=[1])),
    ("pool_id negative", COMPLETION, prompt(pool_id=-1)),
    ("pool_id fraction", COMPLETION, prompt(pool_id=1.5)),
    ("pool_id empty", COMPLETION, prompt(pool_id="")),
    ("on_pool_miss", COMPLETION, prompt(pool_id="bait", on_pool_miss="panic")),
    ("session_id number", COMPLETION, prompt(session_id=5)),
    ("session_id empty", COMPLETION, prompt(session_id="")),
    ("session_id long", COMPLETION, prompt(session_id="x" * 257)),
    ("session_id control", COMPLETION, prompt(session_id="a\nb")),
    ("session_id NUL", COMPLETION, prompt(session_id="a\x00b")),
    ("session_end string", COMPLETION, prompt(session_id="s", session_end="yes")),
    ("prefix negative", COMPLETION, prompt(pool_id="bait", shared_prefix_n_tokens=-1)),
    ("prefix string", COMPLETION, prompt(pool_id="bait", shared_prefix_n_tokens="9")),
    ("prefix too long", COMPLETION, prompt(pool_id="bait", shared_prefix_n_tokens=10**12)),
    ("session_id number, chat", CHAT, chat(session_id=5)),
    # Pools.
    ("pool without source", POOLS, {}),
    ("pool of two sources", POOLS, {"tokens": [1], "prompt": "a"}),
    ("pool of no tokens", POOLS, {"tokens": []}),
    ("pool of an empty prompt", POOLS, {"prompt": ""}),
    ("pool of a token beyond", POOLS, {"tokens": [1, OUTSIDE]}),
    ("pool of a negative token", POOLS, {"tokens": [-1]}),
    ("pool of a huge token", POOLS, {"tokens": [2**32 + 1]}),
    ("pool of strings", POOLS, {"tokens": ["a"]}),
    ("pool of fractions", POOLS, {"tokens": [1.5]}),
    ("pool of nested tokens", POOLS, {"tokens": [[1, 2]]}),
    ("pool of a token string", POOLS, {"tokens": "abc"}),
    ("pool of a prompt list", POOLS, {"prompt": ["a"]}),
    ("pool of no messages", POOLS, {"messages": []}),
    ("pool of a message string", POOLS, {"messages": "hi"}),
    ("pool of a bad message", POOLS, {"messages": [{"content": "a"}]}),
    ("pool name number", POOLS, {"tokens": [1], "name": 5}),
    ("pool name empty", POOLS, {"tokens": [1], "name": ""}),
    ("pool name long", POOLS, {"tokens": [1], "name": "x" * 257}),
    ("pool name control", POOLS, {"tokens": [1], "name": "a\x07"}),
    ("pool name like an id", POOLS, {"tokens": [1], "name": "123"}),
    ("pin string", POOLS, {"tokens": [1], "pin": "yes"}),
    ("unique number", POOLS, {"tokens": [1], "unique": 1}),
    ("wait string", POOLS, {"tokens": [1], "wait": "no"}),
]


@pytest.fixture
def bait(api: Api) -> Api:
    """The shared server with a pool and an idle session that bad requests might harm."""
    api.create_pool(tokens=[504, 3575, 282, 4649], name="bait", pin=True)
    api.complete("Hello there", n_predict=2, session_id="bait")
    return api


def assert_refused(
    api: Api,
    status: int | tuple[int, ...],
    method: str,
    path: str,
    body: Any,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """Asserts the status and that pools and sessions are as before; returns the error object."""
    before = api.state()
    reply = api.send(method, path, body, headers)
    assert reply.status in (status if isinstance(status, tuple) else (status,)), reply.body[:500]
    error = assert_problem(reply, reply.status)
    assert api.state() == before
    assert api.send("GET", "/health").status == 200
    return error


@pytest.mark.parametrize("path", [COMPLETION, "/v1/completions", CHAT, "/tokenize", POOLS])
@pytest.mark.parametrize("name", BROKEN_BODIES)
def test_a_body_that_is_no_json_object_is_a_400(bait: Api, path: str, name: str) -> None:
    assert_refused(bait, 400, "POST", path, BROKEN_BODIES[name])


@pytest.mark.parametrize(
    ("path", "body"), [r[1:] for r in BAD_REQUESTS], ids=[r[0] for r in BAD_REQUESTS]
)
def test_a_bad_request_is_a_400(bait: Api, path: str, body: Any) -> None:
    assert_refused(bait, 400, "POST", path, body)


@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_streamed_request_is_refused_before_any_event(bait: Api, stream: bool) -> None:
    body = prompt(pool_id="bait", shared_prefix_n_tokens=4, stream=stream)
    assert_refused(bait, 400, "POST", COMPLETION, body)


def test_the_message_names_the_field(bait: Api) -> None:
    for path, body, name in (
        (COMPLETION, prompt(session_id=5), "session_id"),
        (COMPLETION, prompt(n_predict="x"), "n_predict"),
        (POOLS, {"tokens": [1], "name": 5}, "name"),
        (POOLS, {"tokens": [1], "pinned": True}, "pinned"),
        (POOLS, {"tokens": [1], "n_predict": 5}, "n_predict"),
    ):
        assert name in assert_refused(bait, 400, "POST", path, body)["message"]


def test_an_unknown_field_is_refused_on_polykv_and_ignored_elsewhere(bait: Api) -> None:
    for path in ("/polykv/pools/bait/pin", "/polykv/pools/bait/unpin"):
        error = assert_refused(bait, 400, "POST", path, {"surprise": 1})
        assert "surprise" in error["message"]
    assert bait.send("POST", COMPLETION, prompt(surprise=1)).status == 200


def test_a_prompt_too_long_tells_both_counts(bait: Api) -> None:
    tokens = [504] * 9000
    chat_text = [{"role": "user", "content": "word " * 9000}]
    for path, body in (
        (COMPLETION, prompt(prompt=tokens)),
        (COMPLETION, prompt(prompt=tokens, stream=True)),
        (COMPLETION, prompt(prompt=tokens, pool_id="bait")),
        (COMPLETION, prompt(prompt=tokens, session_id="bait")),
        ("/v1/completions", {"prompt": tokens, "max_tokens": 1}),
        (CHAT, {"messages": chat_text, "max_tokens": 1}),
        (POOLS, {"tokens": tokens}),
        (POOLS, {"messages": chat_text}),
    ):
        error = assert_refused(bait, 400, "POST", path, body)
        assert error["type"] == "exceed_context_size_error"
        assert error["n_prompt_tokens"] >= 9000
        assert error["n_ctx"] == 8192


@pytest.mark.parametrize("path", [COMPLETION, POOLS])
def test_a_huge_body_is_refused(bait: Api, path: str) -> None:
    before = bait.state()
    body = b'{"prompt": "' + b"hello " * 8_000_000 + b'"}'
    reply = bait.send("POST", path, body)
    assert_problem(reply, reply.status)
    assert reply.status in (400, 413)
    assert bait.state() == before


def test_an_announced_giant_body_is_refused(bait: Api) -> None:
    address = urlsplit(bait.base_url)
    head = (
        f"POST {COMPLETION} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Content-Type: application/json\r\nContent-Length: {10**13}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(head.encode())
        connection.shutdown(socket.SHUT_WR)
        status_line = connection.recv(1024).split(b"\r\n")[0]
    assert status_line.split()[1] in (b"400", b"413")
    assert bait.send("GET", "/health").status == 200


@pytest.mark.parametrize("value", ["a\tb", "x" * 257, "caf\xe9"], ids=["control", "long", "UTF-8"])
def test_a_bad_session_header_is_refused(bait: Api, value: str) -> None:
    assert_refused(bait, 400, "POST", COMPLETION, prompt(), {"X-Polykv-Session": value})


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-www-form-urlencoded", MULTIPART, ""]
)
@pytest.mark.parametrize(
    ("path", "body"),
    [(POOLS, {"tokens": [1, 2]}), ("/polykv/pools/bait/unpin", {})],
    ids=["create", "unpin"],
)
def test_a_state_change_needs_the_content_type_of_json(
    bait: Api, path: str, body: Any, content_type: str
) -> None:
    headers = {"Content-Type": content_type}
    assert_refused(bait, (400, 415), "POST", path, json.dumps(body).encode(), headers)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/plain", b""), (MULTIPART, FORM), ("application/x-www-form-urlencoded", b"")],
    ids=["text", "multipart", "urlencoded"],
)
def test_a_form_that_a_foreign_page_may_send_changes_nothing(
    bait: Api, content_type: str, body: bytes
) -> None:
    headers = {"Content-Type": content_type}
    assert_refused(bait, (400, 415), "POST", "/polykv/pools/bait/unpin", body, headers)


def test_a_foreign_origin_or_host_may_not_change_state(bait: Api) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        before = bait.state()
        for method, path, body in (
            ("POST", POOLS, {"tokens": [1, 2]}),
            ("POST", "/polykv/pools/bait/unpin", {}),
            ("DELETE", "/polykv/pools/bait?force=1", {}),
            ("DELETE", "/polykv/sessions?all=1", {}),
        ):
            reply = bait.send(method, path, body, headers)
            assert_problem(reply, 403)
        assert bait.state() == before


def test_the_servers_own_origin_may_change_state(bait: Api) -> None:
    headers = {"Origin": bait.base_url}
    reply = bait.send("POST", "/polykv/pools/bait/unpin", {}, headers)
    assert reply.status == 200
    assert bait.get("/polykv/pools/bait")["pools"][0]["pinned"] is False


def test_text_in_names_is_kept_as_it_is(bait: Api) -> None:
    name = '<script>"\\ \u202e {x="y"} 🎉'
    pool_id = bait.create_pool(tokens=[1, 2, 3], name=name)["pool_id"]
    assert bait.pool(pool_id)["name"] == name
    assert bait.complete([1, 2, 3, 4], n_predict=1, pool_id=name)["opencoti"]["cache_n"] == 3
    assert bait.metrics()["opencoti_polykv:queries_total"] >= 1
