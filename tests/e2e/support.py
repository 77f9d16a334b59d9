"""What the end-to-end tests talk to a server with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from os.path import commonprefix
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from harness import client
from harness.client import Completion, Exchange, Reply
from prometheus_client.parser import text_string_to_metric_families

# Against hanging only; nothing is asserted about how long things take.
TIMEOUT_S = 120.0
# Where the two likeliest tokens are closer than this, rounding may pick either (nat).
NEAR_TIE = 0.1

T = TypeVar("T")


class Api:
    """One server's HTTP API. Methods raise HttpError on a status that is not 2xx, but for `send`."""

    def __init__(self, base_url: str, key: str | None = None) -> None:
        self.base_url = base_url
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def _with_key(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        return {**self._headers, **(headers or {})}

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """The whole answer, whatever its status."""
        return client.request(
            self.base_url, method, path, body, self._with_key(headers), TIMEOUT_S
        )

    def open(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Exchange:
        """Sends a POST and leaves reading, or dropping, the answer to the caller."""
        return Exchange(self.base_url, "POST", path, body, self._with_key(headers), TIMEOUT_S)

    def watch(self, path: str, headers: Mapping[str, str] | None = None) -> Exchange:
        """Sends a GET and leaves reading, or dropping, the answer to the caller."""
        return Exchange(self.base_url, "GET", path, None, self._with_key(headers), TIMEOUT_S)

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def post(self, path: str, body: Any) -> Any:
        return self._call("POST", path, body)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path, None, {"Content-Type": "application/json"})

    def _call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        return client.call(
            self.base_url, method, path, body, headers=self._with_key(headers), timeout_s=TIMEOUT_S
        )

    def complete(self, prompt: Any, n_predict: int = 8, **fields: Any) -> Any:
        """The body of a greedy, non-streamed /completion."""
        return self.post("/completion", greedy(prompt, n_predict, **fields))

    def stream(self, prompt: Any, n_predict: int = 8, **fields: Any) -> Completion:
        """A greedy, streamed /completion, read to its end."""
        return self.follow("/completion", greedy(prompt, n_predict, **fields))

    def follow(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Completion:
        """A streamed completion on any route, read to its end."""
        return client.stream_completion(
            self.base_url, path, body, self._with_key(headers), TIMEOUT_S
        )

    def tokens(self, text: str) -> list[int]:
        return self.post("/tokenize", {"content": text})["tokens"]

    def text(self, tokens: Iterable[int]) -> str:
        return self.post("/detokenize", {"tokens": list(tokens)})["content"]

    def create_pool(self, **body: Any) -> Any:
        return self.post("/polykv/pools", body)

    def pool_ids(self) -> list[int]:
        return [pool["pool_id"] for pool in self.get("/polykv/pools")["pools"]]

    def pool(self, pool_id: int) -> Any:
        """The pool's entry; None when there is no such pool."""
        pools = self.get("/polykv/pools")["pools"]
        return next((pool for pool in pools if pool["pool_id"] == pool_id), None)

    def fork(self, parent: Any, **body: Any) -> Any:
        return self.post(f"/polykv/pools/{parent['pool_id']}/fork", body)

    def pin(self, pool_id: int) -> Any:
        return self.post(f"/polykv/pools/{pool_id}/pin", {})

    def unpin(self, pool_id: int) -> Any:
        return self.post(f"/polykv/pools/{pool_id}/unpin", {})

    def release(self, pool_id: int) -> None:
        """Releases a pool at once, with its pin and all its references."""
        self.unpin(pool_id)
        for _ in range(max(1, self.pool(pool_id)["refs"])):
            self.delete(f"/polykv/pools/{pool_id}?force=1")
        assert self.pool(pool_id) is None

    def sessions(self) -> dict[str, Any]:
        return {s["session_id"]: s for s in self.get("/polykv/sessions")["sessions"]}

    def end_session(self, session_id: str) -> Any:
        return self.delete(f"/polykv/sessions?session_id={quote(session_id, safe='')}")

    def state(self) -> Any:
        """Pools and sessions, without the figures that change while nothing happens."""
        return _without_clocks([self.get("/polykv/pools"), self.get("/polykv/sessions")])

    def cells_used(self) -> int:
        return self.get("/polykv/pools")["kv_cells_used"]

    def metrics(self) -> dict[str, float]:
        """Every sample by its name; samples that differ in their labels are added up."""
        text = self.send("GET", "/metrics").text
        totals: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
        return totals

    def clear(self) -> None:
        """Ends all sessions and releases all pools."""
        self.delete("/polykv/sessions?all=1")
        for pool_id in reversed(self.pool_ids()):  # children have higher ids than their parents
            self.release(pool_id)


class Pair(NamedTuple):
    """Ours and llama-server, with the same flags."""

    ours: Api
    peer: Api


def _without_clocks(value: Any) -> Any:
    if isinstance(value, dict):
        names = [name for name in value if not name.endswith("_ts") and name != "tps_ewma"]
        return {name: _without_clocks(value[name]) for name in names}
    if isinstance(value, list):
        return [_without_clocks(item) for item in value]
    return value


def greedy(prompt: Any, n_predict: int, **fields: Any) -> dict[str, Any]:
    """A /completion body that samples the likeliest token."""
    return {"prompt": prompt, "n_predict": n_predict, "temperature": 0, **fields}


def eventually(check: Callable[[], T], what: str, timeout_s: float = TIMEOUT_S) -> T:
    """Polls `check` until its result is true, and returns that; fails the test when it never is."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


def eventually_equal(read: Callable[[], T], expected: T, what: str) -> None:
    """Polls `read` until it gives `expected`; fails the test with the last value."""
    deadline = time.monotonic() + TIMEOUT_S
    while (value := read()) != expected:
        assert time.monotonic() < deadline, f"{what}: {value}, expected {expected}"
        time.sleep(0.02)


def counting(start: int, length: int = 30) -> str:
    """A prompt that the model continues by counting on from `start + length`, without doubt.

    Its two likeliest tokens are far apart at every step, so that the greedy text does not depend on
    the rounding that different batch shapes bring. Different starts give different texts.
    """
    return "\n" + ", ".join(str(number) for number in range(start, start + length)) + ","


def counted(start: int, n_numbers: int) -> str:
    """The text with which a model that counts goes on from `start`."""
    return "".join(f" {number}," for number in range(start, start + n_numbers))


def read_tokens(exchange: Exchange, n_tokens: int) -> list[Any]:
    """Reads a stream up to its `n_tokens`-th chunk with text and returns the chunks."""
    chunks: list[Any] = []
    for event in exchange.events():
        chunks.append(event.data)
        if sum(bool(client.chunk_text(chunk)) for chunk in chunks) >= n_tokens:
            return chunks
    raise AssertionError(f"the stream ended after {len(chunks)} chunks: {chunks[-1:]}")


def assert_as_alone(text: str, alone: Any) -> None:
    """The text is that of the reply with n_probs=2, or differs first at a near-tie."""
    length = len(commonprefix([text, alone["content"]]))
    if text == alone["content"]:
        return
    for entry in alone["completion_probabilities"]:
        length -= len(entry["token"])
        if length < 0:
            first, second = (top["logprob"] for top in entry["top_logprobs"][:2])
            assert first - second < NEAR_TIE, f"differs at {entry['token']!r} without a near-tie"
            return
    raise AssertionError(f"{text!r} has another length")


def assert_problem(reply: Reply, status: int, error_type: str | None = None) -> Any:
    """Asserts an error answer of llama-server's shape and returns its `error` object."""
    assert reply.status == status, reply.body[:500]
    error = reply.json["error"]
    assert error["code"] == status
    assert isinstance(error["message"], str) and error["message"]
    if error_type is not None:
        assert error["type"] == error_type
    return error
