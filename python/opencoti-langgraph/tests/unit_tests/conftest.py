from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from opencoti_langgraph.control import ControlClient
from tests.scripted_server import ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer().running() as server:
        yield server


@pytest.fixture
def client(server: ScriptedServer) -> ControlClient:
    return ControlClient(server.url, api_key="secret")


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, client: ControlClient) -> Callable[..., Any]:
    """Calls the client's method of this name, in both of its forms."""

    def call(method: str, /, *args: Any, **kwargs: Any) -> Any:
        if request.param == "sync":
            return getattr(client, method)(*args, **kwargs)
        return asyncio.run(getattr(client, f"a{method}")(*args, **kwargs))

    return call
