"""A node that lets a graph go on only while the server has room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.runnables import RunnableLambda
from langgraph.graph import END
from langgraph.types import Command, interrupt

from opencoti_langgraph.control import operations
from opencoti_langgraph.control.client import ControlClient
from opencoti_langgraph.control.steps import Steps
from opencoti_langgraph.control.wire import Capacity, PoolRef
from opencoti_langgraph.state import capacity_update

PROCEED = "proceed"


class CapacityGate(RunnableLambda[Any, Command[str]]):
    """Asks for capacity and goes to node `go`, with the answer in the state's CapacityState keys.

        graph.add_node("gate", CapacityGate(client, go="work"), destinations=("work",))

    Without room, `on_saturation` says what happens: "wait" asks again, for `max_wait_s` seconds,
    then raises PoolSaturatedError; "route" goes to node `hold`; "interrupt" stops the graph, and
    goes on when it is resumed with "proceed" or when there is room by then, else to its end.
    The pool is the state's `pool_id`, else the one given here.
    """

    def __init__(
        self,
        client: ControlClient,
        *,
        go: str,
        hold: str = END,
        pool_id: PoolRef | None = None,
        expected_tokens: int | None = None,
        on_saturation: Literal["wait", "route", "interrupt"] = "wait",
        max_wait_s: float = 60.0,
    ) -> None:
        self.client = client
        self.go = go
        self.hold = hold
        self.pool_id = pool_id
        self.expected_tokens = expected_tokens
        self.on_saturation = on_saturation
        self.max_wait_s = max_wait_s
        super().__init__(self._pass, self._apass, name="capacity_gate")

    def _pass(self, state: Mapping[str, Any]) -> Command[str]:
        return self._decide(self.client.run(self._ask(state)))

    async def _apass(self, state: Mapping[str, Any]) -> Command[str]:
        return self._decide(await self.client.arun(self._ask(state)))

    def _ask(self, state: Mapping[str, Any]) -> Steps[Capacity]:
        pool = state.get("pool_id") or self.pool_id
        if pool is None:
            raise ValueError("a capacity gate needs a pool: the state's pool_id, or its own")
        if self.on_saturation == "wait":
            return operations.wait_for_room(
                pool, expected_tokens=self.expected_tokens, max_wait_s=self.max_wait_s
            )
        return operations.capacity(pool, expected_tokens=self.expected_tokens)

    def _decide(self, verdict: Capacity) -> Command[str]:
        update = capacity_update(verdict)
        if verdict["can_admit"]:
            return Command(update=update, goto=self.go)
        if self.on_saturation == "route":
            return Command(update=update, goto=self.hold)
        answer = interrupt({"type": "pool_saturated", "reason": verdict["reason"], **update})
        return Command(update=update, goto=self.go if answer == PROCEED else END)
