"""A rule of the client without its input and output.

A rule is a generator: it yields what is to be done next, is sent the result of that or has the
failure thrown in, and returns its own result. ControlClient drives it, blocking or not, so that
each rule is written once.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

STATUS_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Request:
    """An HTTP request; its result is the JSON of the answer."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    params: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = STATUS_TIMEOUT_S
    """None: as long as the server works on it."""


@dataclass(frozen=True)
class Sleep:
    """A pause; it has no result."""

    seconds: float


Step: TypeAlias = Request | Sleep
Steps: TypeAlias = Generator[Step, Any, T]
