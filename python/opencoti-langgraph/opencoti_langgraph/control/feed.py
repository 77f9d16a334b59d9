"""A stream of the server's events that outlives its connection."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NotRequired

from httpx_sse import ServerSentEvent
from typing_extensions import TypedDict

from opencoti_langgraph.control.errors import OpencotiError
from opencoti_langgraph.control.steps import Request

SHORTEST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
SILENCE_S = 60.0


class Event(TypedDict):
    """One event of the server. `type` is its kind; `id` resumes a stream behind it."""

    type: str
    data: dict[str, Any]
    id: NotRequired[str]


@dataclass
class Feed:
    """Where a subscription stands, and what to do when its connection ends."""

    path: str
    last_event_id: str | None = None
    reconnect: bool = True
    _pause_s: float = SHORTEST_PAUSE_S

    def request(self) -> Request:
        """What opens the stream, behind the last event that was taken."""
        headers = {"Accept": "text/event-stream"}
        if self.last_event_id is not None:
            headers["Last-Event-ID"] = self.last_event_id
        return Request("GET", self.path, headers=headers, timeout_s=SILENCE_S)

    def take(self, sse: ServerSentEvent) -> Event | None:
        """The event that arrived; None if it carries nothing."""
        if not sse.data:
            return None
        self._pause_s = SHORTEST_PAUSE_S
        event: Event = {"type": sse.event, "data": json.loads(sse.data)}
        if sse.id:
            self.last_event_id = event["id"] = sse.id
        return event

    def pause_after(self, error: OpencotiError | None) -> float | None:
        """Seconds until the stream is opened again after it ended, by `error` or without one; None:
        it stays ended. Raises what asking again would not mend."""
        refused = error is not None and error.status is not None and error.status < 500
        if error is not None and (refused or not self.reconnect):
            raise error
        if not self.reconnect:
            return None
        pause = self._pause_s
        self._pause_s = min(2 * pause, LONGEST_PAUSE_S)
        if error is not None and error.retry_after is not None:
            pause = max(pause, error.retry_after)
        return pause
