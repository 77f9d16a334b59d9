"""SIGTERM: running streams may end, new work is refused, the exit code is 0."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from harness.client import Event
from harness.server import ServerProcess
from support import Api, assert_problem, counted, counting, eventually, greedy

FLAGS = ("-c", "4096", "-np", "1", "--kv-unified", "--metrics")
STOP_SIGNALS = [signal.SIGTERM, signal.SIGINT]


def first_event(events: Iterator[Event]) -> Event:
    return next(events)


def wait_for_draining(api: Api) -> None:
    eventually(lambda: api.send("GET", "/health?ready=1").status == 503, "the server drains")


def test_an_idle_server_exits_at_once_with_0(start_server: Callable[..., ServerProcess]) -> None:
    for number in STOP_SIGNALS:
        server = start_server(*FLAGS)
        server.send_signal(number)
        assert server.process.wait(60) == 0


def test_a_running_stream_ends_properly_and_new_work_is_refused(
    start_server: Callable[..., ServerProcess],
) -> None:
    server = start_server(*FLAGS, "--polykv-drain-ms", "120000")
    api = Api(server.base_url)
    body = greedy(counting(100), 400, ignore_eos=True, stream=True)
    with api.open("/completion", body) as exchange:
        events = exchange.events()
        chunks = [first_event(events).data]
        server.send_signal(signal.SIGTERM)
        wait_for_draining(api)
        for path, new_work in (
            ("/completion", greedy("Hi", 1)),
            ("/completion", greedy("Hi", 1, stream=True)),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
            ("/polykv/pools", {"tokens": [1, 2, 3]}),
        ):
            reply = api.send("POST", path, new_work)
            assert_problem(reply, 503)
            assert int(reply.headers["retry-after"]) >= 1
        chunks += [event.data for event in events]
    assert not any("error" in chunk for chunk in chunks)
    assert chunks[-1]["stop"] is True
    assert chunks[-1]["tokens_predicted"] == 400
    assert "".join(chunk["content"] for chunk in chunks).startswith(counted(130, 40))
    assert server.process.wait(60) == 0


@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions"])
def test_a_stream_that_outlasts_the_drain_gets_an_error_event(
    start_server: Callable[..., ServerProcess], path: str
) -> None:
    server = start_server(*FLAGS, "--polykv-drain-ms", "300")
    body = {
        "prompt": "Hi",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 4000,
        "ignore_eos": True,
        "stream": True,
    }
    with Api(server.base_url).open(path, body) as exchange:
        events = exchange.events()
        first_event(events)
        server.send_signal(signal.SIGTERM)
        data = [event.data for event in events if event.data is not None]
    assert data[-1]["error"]["code"] == 503
    assert data[-1]["error"]["message"]
    assert server.process.wait(60) == 0


def test_a_queued_request_is_refused_when_the_server_stops(
    start_server: Callable[..., ServerProcess],
) -> None:
    server = start_server(*FLAGS, "--polykv-drain-ms", "300")
    api = Api(server.base_url)
    running = greedy("Hi", 4000, ignore_eos=True, stream=True)
    with api.open("/completion", running) as first:
        first_event(first.events())
        with api.open("/completion", running) as queued:
            name = "opencoti_polykv:num_requests_waiting"
            eventually(lambda: api.metrics()[name] == 1, "a request waits")
            server.send_signal(signal.SIGTERM)
            assert_problem(queued.reply(), 503)
    assert server.process.wait(60) == 0


def test_status_streams_end_with_the_server(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server(*FLAGS)
    api = Api(server.base_url)
    with api.watch("/polykv/events") as events, api.watch("/polykv/tps") as rates:
        told, measured = events.events(), rates.events()
        assert next(told).data["kind"] == "reset"
        next(measured)
        server.send_signal(signal.SIGTERM)
        assert [event.data["kind"] for event in told] == ["draining"]
        list(measured)
    assert server.process.wait(60) == 0
