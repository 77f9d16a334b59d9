"""The control plane of a PolyKV server: pools, forks, sessions, capacity, live rates, events.

    client = ControlClient("http://127.0.0.1:8080")
    pool = client.create_pool(messages=[{"role": "system", "content": "You are a reviewer."}])

Needs nothing of LangGraph and loads none of it.
"""

from opencoti_langgraph.control.client import ControlClient
from opencoti_langgraph.control.errors import (
    AuthenticationError,
    ConflictError,
    ContextExceededError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    OpencotiError,
    PoolNotFoundError,
    PoolSaturatedError,
    PrefixMismatchError,
    ServerError,
    ServerTimeoutError,
    ServerUnreachableError,
    SessionEndedError,
    SessionNotFoundError,
    UnavailableError,
)
from opencoti_langgraph.control.feed import Event
from opencoti_langgraph.control.wire import (
    Capacity,
    Compaction,
    EventList,
    ForkOptions,
    Policy,
    PolicyOptions,
    Pool,
    PoolCreated,
    PoolOptions,
    PoolRef,
    PoolSession,
    PoolStatus,
    PoolSubtree,
    PoolTree,
    Session,
    SessionTps,
    Tps,
)

__all__ = [
    "AuthenticationError",
    "Capacity",
    "Compaction",
    "ConflictError",
    "ContextExceededError",
    "ControlClient",
    "Event",
    "EventList",
    "ForbiddenError",
    "ForkOptions",
    "InvalidRequestError",
    "NotFoundError",
    "OpencotiError",
    "Policy",
    "PolicyOptions",
    "Pool",
    "PoolCreated",
    "PoolNotFoundError",
    "PoolOptions",
    "PoolRef",
    "PoolSaturatedError",
    "PoolSession",
    "PoolStatus",
    "PoolSubtree",
    "PoolTree",
    "PrefixMismatchError",
    "ServerError",
    "ServerTimeoutError",
    "ServerUnreachableError",
    "Session",
    "SessionEndedError",
    "SessionNotFoundError",
    "SessionTps",
    "Tps",
    "UnavailableError",
]
