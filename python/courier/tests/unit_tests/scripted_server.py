"""A server on the loopback address that answers as a PolyKV server does, or as a test wants it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Json = dict[str, Any]

CALM: Json = {
    "can_admit": True,
    "reason": "",
    "projected_mean_tps_if_admitted": None,
    "mean_active_tps": None,
    "settling": False,
    "n_warming": 0,
    "guaranteed": False,
    "kv_headroom_pct": 100.0,
}


@dataclass(frozen=True)
class Ask:
    """A chat request that has come in."""

    body: Json
    at: float
    n_open: int  # requests that were being answered then, this one included

    @property
    def session(self) -> str:
        return str(self.body["session_id"]).partition("/")[2]

    @property
    def prompt(self) -> str:
        return str(self.body["messages"][-1]["content"])


@dataclass(frozen=True)
class Reply:
    """How an ask is answered: in pieces, or with an error; cut off after so many pieces."""

    pieces: tuple[str, ...] = ("one ", "two")
    piece_s: float = 0.0
    cut_after: int | None = None
    status: int = 200
    error: Json = field(default_factory=dict)
    stop_reason: str | None = None


def refusal(status: int, type_: str = "", **facts: Any) -> Reply:
    return Reply(status=status, error={"code": status, "message": "no", "type": type_, **facts})


class ScriptedServer:
    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.capacity: Callable[[], Json] = dict
        self.reply: Callable[[Ask], Reply] = lambda ask: Reply()
        self.references: Counter[int] = Counter()
        self.policies: list[Json] = []
        self.tps: dict[str, float] = {}
        self.events: list[tuple[str, Json]] = []
        self.pool_id = 0
        self._lock = threading.Lock()
        self._open = 0
        self._listen(0)
        self.restart()

    def _listen(self, port: int) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer_get(self)

            def do_POST(self) -> None:
                server.answer_post(self, json.loads(self.rfile.read(_length(self)) or b"{}"))

            def do_DELETE(self) -> None:
                server.answer_delete(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._http.daemon_threads = True
        self.port = self._http.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def start(self) -> None:
        """After `stop`: the same address, and nothing remembered."""
        self._listen(self.port)
        self.restart()

    def restart(self) -> None:
        """Another boot: pools and sessions are gone."""
        self.pool_id += 1000
        self.references.clear()

    # Routes.

    def answer_get(self, http: BaseHTTPRequestHandler) -> None:
        path, _, _ = http.path.partition("?")
        if path == "/props":
            _send(http, 200, {"model_alias": "scripted", "total_slots": 4})
        elif path == "/polykv/tps":
            run = self.asks[-1].body["session_id"].partition("/")[0] if self.asks else ""
            sessions = [
                {"session_id": f"{run}/{name}", "tps_ewma": rate, "state": "decoding"}
                for name, rate in self.tps.items()
            ]
            _send(http, 200, {"aggregate_tps": 1.0, "sessions": sessions})
        elif path == f"/polykv/pools/{self.pool_id}/capacity":
            _send(http, 200, {**CALM, **self.capacity()})
        elif path == "/polykv/events" and self.events:
            _head(http, 200, "text/event-stream")
            for name, data in self.events:
                http.wfile.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
        else:
            _send(http, 404, {"error": {"code": 404, "type": "pool_not_found", "message": "no"}})

    def answer_post(self, http: BaseHTTPRequestHandler, body: Json) -> None:
        if http.path == "/polykv/pools":
            self.references[self.pool_id] += 1
            _send(http, 200, self._pool())
        elif http.path.endswith("/admission"):
            self.policies.append(body)
            _send(http, 200, body)
        else:
            self._chat(http, body)

    def answer_delete(self, http: BaseHTTPRequestHandler) -> None:
        self.references[int(http.path.rpartition("/")[2])] -= 1
        _send(http, 200, {})

    def _pool(self) -> Json:
        return {
            "boot_id": self.pool_id,
            "pool_id": self.pool_id,
            "name": "shared",
            "prefix_len": 5,
            "created": True,
            "n_prefilled": 5,
            "prefill_ms": 1.0,
        }

    def _chat(self, http: BaseHTTPRequestHandler, body: Json) -> None:
        with self._lock:
            self._open += 1
            ask = Ask(body, time.monotonic(), self._open)
            self.asks.append(ask)
        try:
            if body["pool_id"] == self.pool_id:
                self._answer_chat(http, self.reply(ask))
            else:
                gone = {"code": 404, "type": "pool_not_found", "message": "No such pool"}
                _send(http, 404, {"error": gone})
        finally:
            with self._lock:
                self._open -= 1

    def _answer_chat(self, http: BaseHTTPRequestHandler, reply: Reply) -> None:
        if reply.status != 200:
            _send(http, reply.status, {"error": reply.error})
            return
        _head(http, 200, "text/event-stream")
        with suppress(ConnectionError):  # the client may leave
            for chunk in _chunks(reply):
                time.sleep(reply.piece_s)
                http.wfile.write(f"data: {chunk}\n\n".encode())


def _chunks(reply: Reply) -> Iterator[str]:
    for i, piece in enumerate(reply.pieces):
        if i == reply.cut_after:
            return
        yield json.dumps({"choices": [{"delta": {"content": piece}}]})
    block = {"session_tps": 12.5, "stop_reason": reply.stop_reason}
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": len(reply.pieces),
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    yield json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}], "opencoti": block})
    yield json.dumps({"choices": [], "usage": usage})
    yield "[DONE]"


def _length(http: BaseHTTPRequestHandler) -> int:
    return int(http.headers.get("Content-Length", 0))


def _head(http: BaseHTTPRequestHandler, status: int, content_type: str) -> None:
    http.send_response(status)
    http.send_header("Content-Type", content_type)
    http.end_headers()


def _send(http: BaseHTTPRequestHandler, status: int, body: Json) -> None:
    _head(http, status, "application/json")
    http.wfile.write(json.dumps(body).encode())
