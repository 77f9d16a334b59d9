"""An HTTP server that answers what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """One request that arrived."""

    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]
    """Names in lower case."""
    body: Any


@dataclass(frozen=True)
class Reply:
    """An answer: JSON, or with `events` a stream of server-sent events, each one's text."""

    json: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    events: Iterator[str] | list[str] | None = None


Answer = Callable[[Asked], Reply]


def problem(status: int, kind: str, message: str = "no", **details: Any) -> Reply:
    """An error as llama-server writes it."""
    error = {"code": status, "message": message, "type": kind, **details}
    return Reply({"error": error}, status)


def data_event(data: Any) -> str:
    return f"data: {json.dumps(data)}\n\n"


class ScriptedServer:
    """Answers by `routes`, a function for each "METHOD /path"; what is not there is a 404."""

    def __init__(self) -> None:
        self.routes: dict[str, Answer] = {}
        self.asked: list[Asked] = []
        self.dropped = threading.Event()
        """Set when a client left before its stream ended."""
        self.url = ""

    def on(self, route: str, *replies: Reply | Any) -> None:
        """Answers `route` with these in turn, the last one ever again; what is no Reply is JSON."""
        waiting = [reply if isinstance(reply, Reply) else Reply(reply) for reply in replies]

        def answer(_: Asked) -> Reply:
            return waiting.pop(0) if len(waiting) > 1 else waiting[0]

        self.routes[route] = answer

    @contextmanager
    def running(self) -> Iterator[ScriptedServer]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        route = self.routes.get(f"{asked.method} {asked.path}")
        return route(asked) if route else problem(404, "not_found_error", "File Not Found")


def _handler_of(script: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _serve(self) -> None:
            url = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            reply = script.answer(
                Asked(
                    self.command,
                    url.path,
                    dict(parse_qsl(url.query)),
                    {name.lower(): value for name, value in self.headers.items()},
                    json.loads(body) if body else None,
                )
            )
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.events is not None:
                self._stream(reply.events)
                return
            text = json.dumps(reply.json).encode()
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _stream(self, events: Iterator[str] | list[str]) -> None:
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                for event in events:
                    self.wfile.write(event.encode())
                    self.wfile.flush()
            except OSError:
                script.dropped.set()

    return Handler
