"""The server's session for a place in a LangGraph run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

LONGEST = 256  # bytes, as the server allows
SENT = "__pregel_push"


def session_id_of(metadata: Mapping[str, Any] | None) -> str | None:
    """The session that a model call belongs to, by the metadata that LangGraph gives it.

    The same in every turn of a node's loop in one thread; another one for each nested run and for
    each `Send`, which run at the same time. None without a thread: nothing would tell two runs
    apart.
    """
    if not metadata or not metadata.get("thread_id"):
        return None
    parts = [str(metadata["thread_id"])]
    if namespace := metadata.get("langgraph_checkpoint_ns"):
        *outer, task = str(namespace).split("|")
        path = metadata.get("langgraph_path") or ("",)
        # A task has another id in each step, so only what was sent is named by it.
        parts += [*outer, task if path[0] == SENT else task.split(":")[0]]
    name = "/".join(parts)
    if len(name.encode()) > LONGEST or not name.isprintable():
        return hashlib.sha256(name.encode()).hexdigest()
    return name


class SessionsInUse:
    """Lends a session to one call at a time; others that are made meanwhile go without one.

    They would wait for each other on the server.
    """

    def __init__(self) -> None:
        self._user_of: dict[str, object] = {}

    @contextmanager
    def lend(self, session_id: str | None) -> Iterator[str | None]:
        user = object()
        if session_id is None or self._user_of.setdefault(session_id, user) is not user:
            yield None
            return
        try:
            yield session_id
        finally:
            del self._user_of[session_id]
