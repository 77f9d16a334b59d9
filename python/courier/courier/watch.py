"""The server's own events, as far as they concern a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from opencoti_langgraph.control import Capacity, ControlClient, Event, OpencotiError

# What the report has elsewhere: the steps themselves, and courier's own rows.
UNTOLD = {
    "reset",
    "session_begun",
    "session_attached",
    "session_finished",
    "session_ended",
    "policy_changed",
}
# What is not among an event's facts: who it is about, and the verdict's many figures.
PLAIN = {"id", "ts", "kind", "pool_id", "session_id", "request_id", "decision"}
VERDICT = set(Capacity.__annotations__) - {"reason", "projected_mean_tps_if_admitted"}


async def rows(
    client: ControlClient, run_id: str, pool_ids: set[int]
) -> AsyncIterator[tuple[str, str, str]]:
    """Name, subject and detail of each event of the run, until the server has no such route.

    `pool_ids` may grow meanwhile.
    """
    try:
        async for event in client.awatch_events():
            if event["type"] not in UNTOLD and concerns(event, run_id, pool_ids):
                yield name(event), subject(event, run_id), detail(event)
    except OpencotiError:
        return


def concerns(event: Event, run_id: str, pool_ids: set[int]) -> bool:
    """Whether it is about the run, or about the whole server."""
    data = event["data"]
    if "session_id" in data:
        return str(data["session_id"]).startswith(f"{run_id}/")
    return "pool_id" not in data or data["pool_id"] in pool_ids


def name(event: Event) -> str:
    """Its kind, with what the gate decided."""
    decision = event["data"].get("decision")
    return event["type"] if decision is None else f"{event['type']}: {decision}"


def subject(event: Event, run_id: str) -> str:
    data = event["data"]
    if "session_id" in data:
        return str(data["session_id"]).removeprefix(f"{run_id}/")
    return f"pool {data['pool_id']}" if "pool_id" in data else ""


def detail(event: Event) -> str:
    """The facts that it has, the reason first."""
    untold = PLAIN | VERDICT if event["type"] == "admission" else PLAIN
    facts = {key: value for key, value in event["data"].items() if key not in untold}
    keys = sorted(facts, key=lambda key: key != "reason")
    return ", ".join(_fact(key, facts[key]) for key in keys if facts[key] not in (None, ""))


def _fact(key: str, value: Any) -> str:
    if key == "reason":
        return str(value)
    return f"{key} {value:.2f}" if isinstance(value, float) else f"{key} {value}"
