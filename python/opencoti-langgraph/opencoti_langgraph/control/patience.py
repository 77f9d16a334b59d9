"""How long a request that the server does not take is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opencoti_langgraph.control.errors import (
    OpencotiError,
    PoolSaturatedError,
    ServerUnreachableError,
    UnavailableError,
)
from opencoti_langgraph.control.steps import Request, Sleep, Steps

FIRST_PAUSE_S = 0.5


@dataclass
class Patience:
    """What one request has left: tries after a failure, seconds at a saturated pool."""

    retries: int = 0
    saturated_s: float = 0.0
    _failures: int = 0

    def pause_after(self, error: OpencotiError) -> float:
        """Seconds until the next try, as long as the server asks for. Raises `error` when nothing
        is left, or when another try would not mend it.
        """
        if isinstance(error, PoolSaturatedError):
            pause = error.retry_after or 1.0
            if pause > self.saturated_s:
                raise error
            self.saturated_s -= pause
            return pause
        if not isinstance(error, ServerUnreachableError | UnavailableError):
            raise error
        if self._failures >= self.retries:
            raise error
        self._failures += 1
        return error.retry_after or FIRST_PAUSE_S * 2 ** (self._failures - 1)


def patiently(request: Request, patience: Patience) -> Steps[Any]:
    """The request's result, after as many tries as `patience` allows."""
    while True:
        try:
            return (yield request)
        except OpencotiError as error:
            pause = patience.pause_after(error)
        yield Sleep(pause)
