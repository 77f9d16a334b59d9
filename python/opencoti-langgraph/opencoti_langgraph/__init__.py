"""LangGraph on a PolyKV server: a chat model that attaches to pools, and what manages them.

`opencoti_langgraph.control` alone is the client of the server's control plane.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opencoti_langgraph.chat_model import OpencotiChatModel
    from opencoti_langgraph.compaction import CompactionMiddleware, CompactionNode, Compactor
    from opencoti_langgraph.control import ControlClient, OpencotiError, PoolSaturatedError
    from opencoti_langgraph.gate import CapacityGate
    from opencoti_langgraph.middleware import PoolMiddleware
    from opencoti_langgraph.state import CapacityState, PoolState, last
    from opencoti_langgraph.tools import pool_tools

# Loaded when they are asked for: the control client needs none of LangGraph.
_HOME = {
    "CapacityGate": "gate",
    "CapacityState": "state",
    "CompactionMiddleware": "compaction",
    "CompactionNode": "compaction",
    "Compactor": "compaction",
    "ControlClient": "control",
    "OpencotiChatModel": "chat_model",
    "OpencotiError": "control",
    "PoolMiddleware": "middleware",
    "PoolSaturatedError": "control",
    "PoolState": "state",
    "last": "state",
    "pool_tools": "tools",
}

__all__ = [
    "CapacityGate",
    "CapacityState",
    "CompactionMiddleware",
    "CompactionNode",
    "Compactor",
    "ControlClient",
    "OpencotiChatModel",
    "OpencotiError",
    "PoolMiddleware",
    "PoolSaturatedError",
    "PoolState",
    "last",
    "pool_tools",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
