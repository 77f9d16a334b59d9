"""A small HTTP client for one server: plain requests, server-sent events, and connections that drop.

Every request has its own connection, so that a caller may cut it at any moment, and every event
carries the monotonic time at which it was read.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

DEFAULT_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Reply:
    """A whole HTTP answer. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8")

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Event:
    """One `data:` message of a stream; `data` is its JSON, or None for the closing [DONE]."""

    at: float
    data: Any


class HttpError(RuntimeError):
    """The server answered a status that the caller did not expect."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(f"HTTP {reply.status}: {reply.body[:500].decode('utf-8', 'replace')}")
        self.reply = reply


class Exchange:
    """One request on a connection of its own: sent at construction, read or dropped later.

    `body` is sent as it is when it is bytes, else as JSON. Use as a context manager, or call
    `drop()`; both close the connection whatever state the request is in.
    """

    def __init__(
        self,
        base_url: str,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        address = urllib.parse.urlsplit(base_url)
        self._connection = http.client.HTTPConnection(
            address.hostname or "127.0.0.1", address.port, timeout=timeout_s
        )
        self._response: http.client.HTTPResponse | None = None
        all_headers = {"Content-Type": "application/json"} if body is not None else {}
        all_headers.update(headers or {})
        payload = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.connect()
        self._socket: socket.socket = self._connection.sock
        self.sent_at = time.monotonic()
        try:
            self._connection.request(method, address.path + path, body=payload, headers=all_headers)
        except (BrokenPipeError, ConnectionResetError):
            # The server refused the body before all of it was sent: its answer can still be read.
            self._response = http.client.HTTPResponse(self._socket, method=method)
            self._response.begin()

    def __enter__(self) -> Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    def head(self) -> tuple[int, Mapping[str, str]]:
        """Waits for the status line and the headers."""
        if self._response is None:
            self._response = self._connection.getresponse()
        headers = {name.lower(): value for name, value in self._response.getheaders()}
        return self._response.status, headers

    def reply(self) -> Reply:
        """Waits for the whole answer and closes the connection."""
        status, headers = self.head()
        assert self._response is not None
        body = self._response.read()
        self.drop()
        return Reply(status, headers, body)

    def parts(self) -> Iterator[bytes]:
        """Yields the body as it comes in: one chunk of a stream, or less, at a time."""
        self.head()
        assert self._response is not None
        while part := self._response.read1():
            yield part

    def lines(self) -> Iterator[str]:
        """Yields the stream's lines, comments and empty lines too, without their ends.

        Raises HttpError when the answer is not a stream.
        """
        _, headers = self.head()
        if not headers.get("content-type", "").startswith("text/event-stream"):
            raise HttpError(self.reply())
        assert self._response is not None
        while line := self._response.readline():
            yield line.decode("utf-8").rstrip("\r\n")

    def events(self) -> Iterator[Event]:
        """Yields the stream's messages, [DONE] included; ping comments are skipped.

        Raises HttpError when the answer is not a stream.
        """
        for line in self.lines():
            if line.startswith("data:"):
                data = line[len("data:") :].strip()
                yield Event(time.monotonic(), None if data == "[DONE]" else json.loads(data))

    def drop(self) -> None:
        """Closes the connection at once, as a client that was killed would. May be repeated."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        if self._response is not None:
            self._response.close()
        self._connection.close()


def request(
    base_url: str,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Reply:
    """Sends one request and returns its whole answer, whatever the status."""
    with Exchange(base_url, method, path, body, headers, timeout_s) as exchange:
        return exchange.reply()


def call(base_url: str, method: str, path: str, body: Any = None, **options: Any) -> Any:
    """Sends one request and returns the JSON of a 2xx answer. Raises HttpError otherwise."""
    reply = request(base_url, method, path, body, **options)
    if not 200 <= reply.status < 300:
        raise HttpError(reply)
    return reply.json


@dataclass
class Completion:
    """A streamed completion as the client saw it; times are monotonic seconds."""

    sent_at: float
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: list[Any] = field(default_factory=list)
    text: str = ""
    token_times: list[float] = field(default_factory=list)
    ended_at: float = 0.0
    error: Any = None
    done_seen: bool = False

    @property
    def last(self) -> Any:
        """The last chunk before [DONE] or the end of the stream."""
        return self.chunks[-1]

    @property
    def ttft_s(self) -> float:
        """From sending the request to the first text; the whole duration if there was none."""
        return (self.token_times[0] if self.token_times else self.ended_at) - self.sent_at

    @property
    def tokens_per_second(self) -> float:
        """(n - 1) / (last - first) over the chunks with text; 0 with fewer than two."""
        if len(self.token_times) < 2:
            return 0.0
        return (len(self.token_times) - 1) / (self.token_times[-1] - self.token_times[0])

    @property
    def timings(self) -> Mapping[str, Any]:
        """llama-server's `timings` object, from the last chunk that has one."""
        return next((c["timings"] for c in reversed(self.chunks) if c.get("timings")), {})

    @property
    def finish_reason(self) -> str | None:
        """OpenAI's finish reason, or the native `stop_type`; None when the stream was cut."""
        for chunk in reversed(self.chunks):
            if chunk.get("stop"):
                return chunk.get("stop_type")
            for choice in chunk.get("choices") or []:
                if choice.get("finish_reason"):
                    return choice["finish_reason"]
        return None


def chunk_text(chunk: Any) -> str:
    """The text that one stream chunk adds, native or OpenAI."""
    if "content" in chunk:
        return chunk["content"] or ""
    parts = []
    for choice in chunk.get("choices") or []:
        parts.append((choice.get("delta") or {}).get("content") or choice.get("text") or "")
    return "".join(parts)


def follow(exchange: Exchange, on_token: Any = None) -> Completion:
    """Reads a completion stream to its end. `on_token()` is called for each chunk with text.

    An error event ends up in `error`. Raises HttpError when the answer is not a stream.
    """
    result = Completion(sent_at=exchange.sent_at)
    _, result.headers = exchange.head()
    for event in exchange.events():
        if event.data is None:
            result.done_seen = True
            break
        if "error" in event.data:
            result.error = event.data["error"]
            break
        result.chunks.append(event.data)
        text = chunk_text(event.data)
        if text:
            result.text += text
            result.token_times.append(event.at)
            if on_token is not None:
                on_token()
    result.ended_at = time.monotonic()
    return result


def stream_completion(
    base_url: str,
    path: str,
    body: Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    on_token: Any = None,
) -> Completion:
    """Sends `body` with `"stream": true` and reads the stream to its end."""
    with Exchange(base_url, "POST", path, {**body, "stream": True}, headers, timeout_s) as exchange:
        return follow(exchange, on_token)
