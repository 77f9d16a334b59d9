"""The rates that the server tells, against what its clients measure at their sockets."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from servers import Servers
from support import Api, counting, greedy

FLAGS = ("-c", "8192", "-np", "8", "--kv-unified", "--polykv-tps-interval-ms", "50")

# The rule of the server: the last 128 tokens or 2 s, whichever is less, but at least 4 gaps.
WINDOW_TOKENS, WINDOW_S, MIN_GAPS = 128, 2.0, 4
SAMPLES, STEADY_S = 40, 2.2


class Client:
    """One stream; `times[i]` is when its i-th token was read."""

    def __init__(self, api: Api, number: int) -> None:
        self.session_id = f"client-{number}"
        prompt = counting(100 * (number + 1))
        self.n_prompt = len(api.tokens(prompt))
        body = greedy(prompt, 4000, ignore_eos=True, stream=True, session_id=self.session_id,
                      return_tokens=True)
        self.exchange = api.open("/completion", body)
        self.times: list[float] = []

    def read(self) -> None:
        """Until the exchange is dropped."""
        for event in self.exchange.events():
            self.times += [event.at] * len(event.data["tokens"])

    def rate_at(self, newest: int) -> float:
        """The server's rule on what arrived here, up to the token `newest`."""
        times, gaps = self.times, MIN_GAPS
        while (
            gaps < min(newest, WINDOW_TOKENS - 1)
            and times[newest] - times[newest - gaps - 1] <= WINDOW_S
        ):
            gaps += 1
        return gaps / (times[newest] - times[newest - gaps])


def watch(api: Api, clients: list[Client]) -> list[Any]:
    """Documents of the feed while all decode and have for some time."""
    documents: list[Any] = []
    with api.watch("/polykv/tps") as feed:
        for event in feed.events():
            began = max((client.times[0] for client in clients if client.times), default=0)
            steady = all(client.times for client in clients) and event.at - began > STEADY_S
            if steady:
                documents.append(event.data)
            if len(documents) == SAMPLES:
                break
    return documents


@pytest.mark.parametrize("n_sessions", [1, 4, 8])
def test_rates_are_those_that_clients_see(
    servers: Servers, server_binary: Any, n_sessions: int
) -> None:
    """Both sides look at the same tokens, told apart by the server's count of them, so that the
    comparison holds on a machine that is busy otherwise; a single late read is no failure."""
    api = Api(servers.shared(server_binary, FLAGS).base_url)
    clients = [Client(api, number) for number in range(n_sessions)]
    with ThreadPoolExecutor(n_sessions) as threads:
        for client in clients:
            threads.submit(client.read)
        documents = watch(api, clients)
        time.sleep(0.2)  # the tokens of the last document arrive
        for client in clients:
            client.exchange.drop()
    api.clear()
    told = {client.session_id: [] for client in clients}
    for document in documents:
        assert document["n_active"] == n_sessions
        for session in document["sessions"]:
            told[session["session_id"]].append((session["ctx_used"], session["tps_ewma"]))
    for client in clients:
        ratios = [
            tps / client.rate_at(ctx_used - client.n_prompt)
            for ctx_used, tps in told[client.session_id]
        ]
        assert statistics.median(ratios) == pytest.approx(1, abs=0.03), ratios
    sums = [sum(s["tps_ewma"] for s in document["sessions"]) for document in documents]
    aggregates = [document["aggregate_tps"] for document in documents]
    ratios = [total / sum_ for total, sum_ in zip(aggregates, sums, strict=True)]
    assert statistics.median(ratios) == pytest.approx(1, abs=0.02), ratios
    means = [document["mean_active_tps"] for document in documents]
    assert means == pytest.approx([sum_ / n_sessions for sum_ in sums])


def test_a_sessions_rate_comes_with_its_answer(servers: Servers, server_binary: Any) -> None:
    api = Api(servers.shared(server_binary, FLAGS).base_url)
    body = greedy(counting(100), 20, ignore_eos=True, session_id="one")
    reply = api.send("POST", "/completion", body)
    told = reply.json["opencoti"]["session_tps"]
    assert float(reply.headers["x-session-tps"]) == pytest.approx(told)
    # llama-server counts from the end of the prompt and has one gap more.
    assert told == pytest.approx(reply.json["timings"]["predicted_per_second"], rel=0.2)
    api.clear()
