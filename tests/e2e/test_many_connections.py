"""More connections than anybody serves at once: all are answered, and status before all."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.crowd import Call, Crowd
from harness.server import ServerProcess
from support import TIMEOUT_S, Api, assert_problem, eventually, eventually_equal, greedy

STATUS = ("/health", "/v1/health", "/metrics", "/slots")
# Of 640 files, 512 are kept for other things than connections with a thread.
FILES, CONNECTIONS = 640, 128


def connect(server: ServerProcess, sent: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S)
    connection.sendall(sent)
    return connection


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


@pytest.fixture
def small_server(
    server_binary: Path, model: Path, tmp_path: Path
) -> Iterator[ServerProcess]:
    """Starts a server that may open few files."""
    limiter = shutil.which("prlimit")
    assert limiter, "util-linux is missing"
    flags = [f"--nofile={FILES}:{FILES}", str(server_binary), "-m", str(model), "-c", "512"]
    with ServerProcess(limiter, [*flags, "--metrics"], tmp_path / "server.log") as server:
        yield server


def test_hundreds_wait_while_others_idle_and_all_are_answered(
    start_server: Callable[..., ServerProcess],
) -> None:
    server = start_server("-c", "4096", "-np", "16", "--kv-unified", "--metrics")
    api = Api(server.base_url)
    pool = api.create_pool(prompt="Count on: 1 2 3 4")["pool_id"]
    body = greedy("Count on: 1 2 3 4 5 6", 2, pool_id=pool, ignore_eos=True)
    with ExitStack() as idle, Crowd(server.base_url) as crowd:
        for _ in range(100):  # kept alive after an answer, or never used
            idle.enter_context(connect(server, request("/health")))
            idle.enter_context(connect(server, b""))
        calls = [
            crowd.send(Call("POST", "/completion", {**body, "stream": i % 2 == 0}))
            for i in range(200)
        ]
        waiting = "opencoti_polykv:num_requests_waiting"
        eventually(lambda: crowd.turn(0.1) or api.metrics()[waiting] > 100, "many wait")
        assert api.send("GET", "/health").status == 200
        crowd.finish(TIMEOUT_S)
    for call in calls:
        assert (call.status, call.fault) == (200, "")
        last = call.events[-1] if call.body["stream"] else call.json
        assert last["stop"] and last["tokens_predicted"] == 2
    api.release(pool)
    eventually_equal(api.cells_used, 0, "all cells are free")


def test_status_is_answered_when_all_threads_are_held_and_the_rest_refused(
    small_server: ServerProcess,
) -> None:
    api = Api(small_server.base_url)
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(connect(small_server, b"GET /health HTTP/1.1\r\n"))  # and no more
        for path in STATUS:
            assert api.send("GET", path).status == 200
        for reply in (
            api.send("POST", "/completion", greedy("Hi", 1)),
            api.send("GET", "/v1/models", headers={"X-Polykv-Overload": "0"}),
        ):
            assert_problem(reply, 503)
            assert reply.headers["retry-after"]
    eventually(lambda: api.send("GET", "/v1/models").status == 200, "threads are free again")
    assert api.complete("Hi", 1)["tokens_predicted"] == 1


def test_half_a_request_does_not_keep_the_server_from_ending(small_server: ServerProcess) -> None:
    with (
        connect(small_server, b"POST /completion HTTP/1.1\r\n"),
        connect(small_server, b"POST /completion HTTP/1.1\r\nContent-Length: 99\r\n\r\n{"),
        connect(small_server, b""),
    ):
        assert Api(small_server.base_url).send("GET", "/health").status == 200
        small_server.send_signal(signal.SIGTERM)
        assert small_server.process.wait(TIMEOUT_S / 2) == 0
