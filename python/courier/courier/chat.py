"""Streamed chat completions, and which of their failures another try may mend."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from opencoti_langgraph.control import (
    ControlClient,
    OpencotiError,
    PoolSaturatedError,
    ServerUnreachableError,
    UnavailableError,
)
from opencoti_langgraph.control.errors import error_of
from opencoti_langgraph.control.steps import Request

SILENCE_S = 300.0  # a request may be queued, held, and have a long prompt to compute
PASSING_STATUS = {408, 425}


async def chunks(
    client: ControlClient, body: Mapping[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """The chunks of an answer until it has ended as it should. Raises OpencotiError."""
    request = Request("POST", "/v1/chat/completions", body=body, timeout_s=SILENCE_S)
    async with client.aopen_events(request) as events:
        async for event in events:
            if event.data == "[DONE]":
                return
            yield _chunk(event.data)
    raise ServerUnreachableError("the answer was cut off")


def _chunk(data: str) -> dict[str, Any]:
    try:
        chunk: dict[str, Any] = json.loads(data)
    except ValueError:
        raise OpencotiError(f"a chunk is not JSON: {data[:100]!r}") from None
    if "error" in chunk:
        raise error_of(int(chunk["error"].get("code", 500)), chunk, {})
    return chunk


def is_saturation(error: OpencotiError) -> bool:
    """Whether the server is well and only has no room."""
    is_full = isinstance(error, UnavailableError) and error.retry_after is not None
    return isinstance(error, PoolSaturatedError) or is_full


def is_refusal(error: OpencotiError) -> bool:
    """Whether the same request would be refused again."""
    status = error.status or 0
    return 400 <= status < 500 and status not in PASSING_STATUS and not is_saturation(error)
