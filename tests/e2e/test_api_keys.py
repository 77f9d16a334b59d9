"""With --api-key every route but the health check needs a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.server import ServerProcess
from servers import Servers
from support import Api, assert_problem

FLAGS = ("-c", "512", "-np", "1", "--kv-unified", "--metrics", "--slots", "--props")
KEYS = ("--api-key", "first-key,second-key")

ROUTES: list[tuple[str, str, Any]] = [
    ("GET", "/v1/models", None),
    ("GET", "/models", None),
    ("GET", "/props", None),
    ("POST", "/props", {}),
    ("GET", "/slots", None),
    ("GET", "/metrics", None),
    ("GET", "/lora-adapters", None),
    ("POST", "/tokenize", {"content": "a"}),
    ("POST", "/detokenize", {"tokens": [1]}),
    ("POST", "/apply-template", {"messages": [{"role": "user", "content": "a"}]}),
    ("POST", "/completion", {"prompt": "a", "n_predict": 1}),
    ("POST", "/completions", {"prompt": "a", "n_predict": 1}),
    ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}),
    ("POST", "/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}),
    ("GET", "/polykv/pools", None),
    ("GET", "/polykv/pools/1", None),
    ("POST", "/polykv/pools", {"tokens": [1, 2]}),
    ("POST", "/polykv/pools/1/pin", {}),
    ("POST", "/polykv/pools/1/unpin", {}),
    ("DELETE", "/polykv/pools/1", {}),
    ("GET", "/polykv/sessions", None),
    ("DELETE", "/polykv/sessions?all=1", {}),
    ("GET", "/no/such/route", None),
]


@pytest.fixture(scope="module")
def guarded(servers: Servers, server_binary: Any) -> Api:
    return Api(servers.shared(server_binary, (*FLAGS, *KEYS)).base_url)


@pytest.mark.parametrize(("method", "path", "body"), ROUTES, ids=lambda value: str(value)[:40])
def test_a_route_needs_a_valid_key(guarded: Api, method: str, path: str, body: Any) -> None:
    for headers in (None, {"Authorization": "Bearer wrong"}, {"X-Api-Key": "first-ke"}):
        reply = guarded.send(method, path, body, headers)
        assert_problem(reply, 401, "authentication_error")


def test_health_needs_no_key(guarded: Api) -> None:
    for path in ("/health", "/v1/health"):
        assert guarded.send("GET", path).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer first-key"},
        {"Authorization": "Bearer second-key"},
        {"X-Api-Key": "second-key"},
    ],
)
def test_each_key_opens_the_server(guarded: Api, headers: dict[str, str]) -> None:
    assert guarded.send("GET", "/polykv/pools", headers=headers).status == 200
    reply = guarded.send("POST", "/completion", {"prompt": "a", "n_predict": 1}, headers)
    assert reply.json["tokens_predicted"] == 1


def test_the_key_does_not_show_in_the_log(
    start_server: Callable[..., ServerProcess],
) -> None:
    server = start_server(*FLAGS, "--api-key", "very-secret-value")
    Api(server.base_url).send("GET", "/props", headers={"X-Api-Key": "very-secret-value"})
    assert "very-secret-value" not in server.log_path.read_text(errors="replace")
