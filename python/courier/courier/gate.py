"""When the next agent may start: decisions on what the server says. Pure; time is a parameter."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from opencoti_langgraph.control import Capacity

from courier.workload import Floor

PATIENCE_S = 2.0  # so long a settled mean must be under the floor before an agent is sent to rest

WARMING = "rates are warming"


class Move(Enum):
    SPAWN = "spawn"
    WAIT = "wait"
    REST = "rest"  # one agent fewer, from its next step on


@dataclass(frozen=True)
class Decision:
    move: Move
    reason: str


@dataclass(frozen=True)
class Crew:
    """The agents as courier knows them."""

    n_running: int
    max_agents: int
    n_starting: int  # asked for, without a first token yet


class Gate(Protocol):
    def decide(self, capacity: Capacity, crew: Crew, now: float) -> Decision:
        """`capacity`: the pool's, read at `now` (seconds)."""
        ...


class FloorGate:
    """Keeps the mean rate over the floor.

    One agent at a time: after each, nobody starts before it has its first token and the server has
    seen what it costs. A tick on which something settles, or on which a rate is too young to count,
    says nothing about the floor: it neither starts an agent nor sends one to rest.
    """

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self._under_since: float | None = None

    def decide(self, capacity: Capacity, crew: Crew, now: float) -> Decision:
        if crew.n_starting > 0 or capacity["settling"]:
            self._under_since = None
            starting = crew.n_starting > 0
            reason = "the last agent has not begun" if starting else "measurement settling"
            return Decision(Move.WAIT, reason)
        if capacity["guaranteed"]:
            return self._spawn_if_seat(crew, "guaranteed minimum")
        if capacity["n_warming"] > 0:
            return Decision(Move.WAIT, WARMING)
        if self._should_rest(capacity, crew, now):
            self._under_since = None
            return Decision(Move.REST, "mean tps below floor")
        if not capacity["can_admit"]:
            return Decision(Move.WAIT, capacity["reason"])
        projected = capacity["projected_mean_tps_if_admitted"]
        if projected is not None and projected < self._floor.target_tps_per_session:
            return Decision(Move.WAIT, "projected mean tps below floor")
        return self._spawn_if_seat(crew, "projected mean tps holds")

    def _should_rest(self, capacity: Capacity, crew: Crew, now: float) -> bool:
        mean = capacity["mean_active_tps"]
        if mean is None or mean >= self._floor.target_tps_per_session:
            self._under_since = None
            return False
        if self._under_since is None:
            self._under_since = now
        too_many = crew.n_running > self._floor.guarantee_min_sessions
        return too_many and now - self._under_since >= PATIENCE_S

    @staticmethod
    def _spawn_if_seat(crew: Crew, reason: str) -> Decision:
        if crew.n_running >= crew.max_agents:
            return Decision(Move.WAIT, "every agent is at work")
        return Decision(Move.SPAWN, reason)


class OpenGate:
    """Starts whatever there is, at once: for comparison."""

    def decide(self, capacity: Capacity, crew: Crew, now: float) -> Decision:
        if crew.n_running >= crew.max_agents:
            return Decision(Move.WAIT, "every agent is at work")
        return Decision(Move.SPAWN, "no gate")
