"""What a server refuses, as exceptions that LangChain's own retry and fallback rules know too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)


class OpencotiError(ModelError):
    """A request that got no answer, or an error answer.

    `status` is the HTTP status (None without an answer), `type` and `details` are the server's
    error type and its whole error object.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.details = dict(details or {})
        self.type = str(self.details.get("type", ""))
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again; None if it did not say."""


class ServerUnreachableError(OpencotiError, ModelConnectionError):
    """No connection, or one that broke before the answer was whole."""


class ServerTimeoutError(OpencotiError, ModelTimeoutError):
    """No answer in the time that the client gives."""


class InvalidRequestError(OpencotiError, ModelInvalidRequestError):
    """400 and other faults of the request; the message names the field."""


class ContextExceededError(OpencotiError, ContextOverflowError):
    """The prompt does not fit; `n_prompt_tokens` and `n_ctx` say by how much."""

    @property
    def n_prompt_tokens(self) -> int | None:
        return self.details.get("n_prompt_tokens")

    @property
    def n_ctx(self) -> int | None:
        return self.details.get("n_ctx")


class AuthenticationError(OpencotiError, ModelAuthenticationError):
    """The API key is missing or wrong."""


class ForbiddenError(OpencotiError, ModelPermissionDeniedError):
    """The server does not do this for this client."""


class NotFoundError(OpencotiError, ModelNotFoundError):
    """No such route or model."""


class PoolNotFoundError(NotFoundError):
    """No such pool; it may have been released, or the server restarted."""


class SessionNotFoundError(NotFoundError):
    """No such session."""


class SessionEndedError(OpencotiError, ModelInvalidRequestError):
    """Somebody ended the session while the request was open."""


class ConflictError(OpencotiError, ModelInvalidRequestError):
    """409: the name belongs to other tokens, or the pool still has children."""


class PrefixMismatchError(ConflictError):
    """A fork that does not begin with its parent's tokens; `mismatch_pos` says where they part."""

    @property
    def mismatch_pos(self) -> int | None:
        return self.details.get("mismatch_pos")


class PoolSaturatedError(OpencotiError, ModelRateLimitError):
    """429: one more session would bring a pool under its floor.

    `details` holds the verdict with its reason.
    """

    @property
    def reason(self) -> str:
        return str(self.details.get("reason", ""))


class UnavailableError(OpencotiError, ModelAPIError):
    """503: loading, full or going down; nothing was changed."""


class ServerError(OpencotiError, ModelAPIError):
    """Any other failure of the server."""


_BY_TYPE: dict[str, type[OpencotiError]] = {
    "exceed_context_size_error": ContextExceededError,
    "pool_not_found": PoolNotFoundError,
    "session_not_found": SessionNotFoundError,
    "session_ended": SessionEndedError,
    "prefix_mismatch": PrefixMismatchError,
    "pool_saturated": PoolSaturatedError,
}

_BY_STATUS: dict[int, type[OpencotiError]] = {
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    429: PoolSaturatedError,
    503: UnavailableError,
}


def error_of(status: int, body: Any, headers: Mapping[str, str]) -> OpencotiError:
    """The exception for an error answer; `body` is its JSON, or None if it had none."""
    error = body.get("error") if isinstance(body, dict) else None
    details = error if isinstance(error, dict) else {}
    fallback = InvalidRequestError if 400 <= status < 500 else ServerError
    kind = _BY_TYPE.get(str(details.get("type", ""))) or _BY_STATUS.get(status, fallback)
    message = str(details.get("message") or f"HTTP {status}")
    return kind(message, status=status, details=details, retry_after=_retry_after(details, headers))


def _retry_after(details: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    milliseconds = details.get("retry_after_ms")
    if isinstance(milliseconds, int | float):
        return milliseconds / 1000
    try:
        return float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
