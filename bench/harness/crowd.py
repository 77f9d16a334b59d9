"""Many requests at once from one thread: raw sockets in one selector, light enough to share the cores
with the server that is measured.

A request has a connection of its own, and its answer ends where the server closes it; with `keep_alive`
it ends after its Content-Length, and `again` sends it once more on the same connection. Answers are kept
as bytes; of streams the time of each event is noted when its bytes are read. Nothing is parsed before
the end.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

EVENT = b"\ndata: "
CONTENT_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
RECEIVE_BYTES = 1 << 16


def stream_body(prompt: list[int], n_predict: int) -> dict[str, Any]:
    """A greedy completion of exactly `n_predict` tokens, as a stream."""
    return {
        "prompt": prompt,
        "n_predict": n_predict,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }


@dataclass(eq=False)
class Call:
    """One request and what came back; times are monotonic seconds, 0 before they are known."""

    method: str
    path: str
    body: Any = None
    on_event: Callable[[Call], None] | None = None
    on_end: Callable[[Call], None] | None = None
    keep_alive: bool = False
    sent_at: float = 0.0
    ended_at: float = 0.0
    event_times: list[float] = field(default_factory=list)
    raw: bytearray = field(default_factory=bytearray)
    fault: str = ""  # what the socket said, if the connection did not end in order

    @property
    def seconds(self) -> float:
        return self.ended_at - self.sent_at

    @property
    def status(self) -> int:
        """The HTTP status; 0 without an answer."""
        words = bytes(self.raw[:16]).split(b" ")
        return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0

    @property
    def is_whole(self) -> bool:
        """Whether the answer has all the bytes that its Content-Length announces."""
        head, separator, body = bytes(self.raw).partition(b"\r\n\r\n")
        length = CONTENT_LENGTH.search(head)
        return bool(separator) and length is not None and len(body) >= int(length[1])

    @property
    def payload(self) -> bytes:
        """The body, put together if it came in chunks."""
        head, _, body = bytes(self.raw).partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" not in head.lower():
            return body
        parts = []
        while body:
            size, _, rest = body.partition(b"\r\n")
            length = int(size or b"0", 16)
            if length == 0:
                break
            parts.append(rest[:length])
            body = rest[length + 2 :]
        return b"".join(parts)

    @property
    def json(self) -> Any:
        """The body of an answer that is no stream; None if it is not JSON."""
        try:
            return json.loads(self.payload)
        except ValueError:
            return None

    @property
    def events(self) -> list[Any]:
        """The JSON of a stream's messages; None for [DONE]."""
        lines = [line for line in self.payload.split(b"\n") if line.startswith(b"data: ")]
        return [None if line[6:] == b"[DONE]" else json.loads(line[6:]) for line in lines]

    @property
    def timings(self) -> dict[str, Any]:
        """llama-server's `timings` object of a native stream's last message, or {}."""
        events = self.events
        return (events[-1] or {}).get("timings", {}) if events else {}


def request_bytes(call: Call) -> bytes:
    payload = b"" if call.body is None else json.dumps(call.body).encode()
    connection = "keep-alive" if call.keep_alive else "close"
    head = f"{call.method} {call.path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n"
    if payload:
        head += f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
    return head.encode() + b"\r\n" + payload


class Crowd:
    """Requests to one server that are open at the same time. For one thread."""

    def __init__(self, base_url: str) -> None:
        address = urllib.parse.urlsplit(base_url)
        self._address = (address.hostname or "127.0.0.1", address.port or 80)
        self._selector = selectors.DefaultSelector()
        self._unsent: dict[Call, bytes] = {}
        self._sockets: dict[Call, socket.socket] = {}

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for call in list(self._sockets):
            self._close(call)
        self._selector.close()

    @property
    def n_open(self) -> int:
        return len(self._sockets)

    def send(self, call: Call) -> Call:
        """Begins to connect and to send; the rest happens in `turn`."""
        self._unsent[call] = request_bytes(call)
        connection = socket.socket()
        connection.setblocking(False)
        call.sent_at = time.monotonic()
        connection.connect_ex(self._address)
        self._sockets[call] = connection
        self._selector.register(connection, selectors.EVENT_WRITE, call)
        return call

    def cut(self, call: Call) -> None:
        """Closes the connection, as a client that goes away does. `on_end` is not called."""
        if call in self._sockets:
            call.ended_at = time.monotonic()
            self._close(call)

    def turn(self, timeout_s: float) -> None:
        """Reads and writes what can be, waiting at most `timeout_s` for it."""
        for key, ready in self._selector.select(timeout_s):
            call = key.data
            if call not in self._sockets:
                continue  # cut by an earlier callback of this turn
            try:
                if ready & selectors.EVENT_WRITE:
                    self._write(call)
                else:
                    self._read(call)
            except OSError as error:
                self._end(call, str(error))

    def again(self, call: Call) -> None:
        """Sends a `keep_alive` call that has ended once more; anew if the connection is gone."""
        call.raw.clear()
        call.fault = ""
        call.ended_at = 0.0
        if call not in self._sockets:
            self.send(call)
            return
        call.sent_at = time.monotonic()
        self._unsent[call] = request_bytes(call)
        self._selector.modify(self._sockets[call], selectors.EVENT_WRITE, call)

    def finish(self, timeout_s: float = 600.0) -> None:
        """Turns until every answer is there. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while self._sockets:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._sockets)} requests are open after {timeout_s} s")
            self.turn(1.0)

    def _write(self, call: Call) -> None:
        connection = self._sockets[call]
        sent = connection.send(self._unsent[call])
        self._unsent[call] = self._unsent[call][sent:]
        if not self._unsent[call]:
            del self._unsent[call]
            self._selector.modify(connection, selectors.EVENT_READ, call)

    def _read(self, call: Call) -> None:
        data = self._sockets[call].recv(RECEIVE_BYTES)
        if not data:
            self._end(call, "" if call.raw else "closed without an answer")
            return
        now = time.monotonic()
        seen = max(0, len(call.raw) - len(EVENT) + 1)
        call.raw += data
        n_events = call.raw.count(EVENT, seen)
        call.event_times += [now] * n_events
        if n_events and call.on_event is not None:
            call.on_event(call)
        if call.keep_alive and call.is_whole:
            self._report(call, "")

    def _end(self, call: Call, fault: str) -> None:
        self._close(call)
        if not call.ended_at:  # else it was an idle connection
            self._report(call, fault)

    def _report(self, call: Call, fault: str) -> None:
        call.fault = fault
        call.ended_at = time.monotonic()
        if call.on_end is not None:
            call.on_end(call)

    def _close(self, call: Call) -> None:
        connection = self._sockets.pop(call)
        self._unsent.pop(call, None)
        self._selector.unregister(connection)
        connection.close()
