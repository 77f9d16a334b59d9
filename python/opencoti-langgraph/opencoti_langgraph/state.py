"""What a graph's state holds of pools and of the server's capacity."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypeVar

from typing_extensions import TypedDict

from opencoti_langgraph.control.wire import Capacity, PoolRef

T = TypeVar("T")


def last(_: T, new: T) -> T:
    """A reducer: of several writes in one step the last stays."""
    return new


class CapacityState(TypedDict):
    """What the server said last about one more session."""

    capacity_ok: NotRequired[Annotated[bool, last]]
    headroom_sessions: NotRequired[Annotated[int | None, last]]
    """How many more sessions, by cells and by the floor; None: nothing bounds them."""
    mean_active_tps: NotRequired[Annotated[float | None, last]]


class PoolState(CapacityState):
    """To be added to a graph's state: `class State(MessagesState, PoolState): …`."""

    pool_id: NotRequired[Annotated[PoolRef | None, last]]
    """The pool that the graph's model calls attach to."""
    stable_pool_id: NotRequired[Annotated[PoolRef | None, last]]
    """The ancestor that compactions fork."""


def capacity_update(verdict: Capacity) -> dict[str, Any]:
    """The verdict as an update of CapacityState."""
    rooms = [verdict["headroom_sessions"], verdict["headroom_sessions_tps"]]
    return {
        "capacity_ok": verdict["can_admit"],
        "headroom_sessions": min((room for room in rooms if room is not None), default=None),
        "mean_active_tps": verdict["mean_active_tps"],
    }
