"""One real server for the whole run, with the model and the binary that ./polykv test names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opencoti_langgraph.control import ControlClient

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "bench"))

# A template that shows tools to the model, unlike the model's own.
TEMPLATE = "models/templates/Qwen-Qwen2.5-7B-Instruct.jinja"
FLAGS = ("-c", "16384", "-np", "8", "--kv-unified", "--chat-template-file")

# Half of the suite's time, spent on variants of tests that are always run.
SLOW = ("structured_output_async", "structured_output_optional", "pydantic_2_v1", "json_mode")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("POLYKV_FULL_SUITES"):
        return
    skip = pytest.mark.skip(reason="slow; set POLYKV_FULL_SUITES=1")
    for item in items:
        if "TestReal" in item.nodeid and any(name in item.name for name in SLOW):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from harness.server import ServerProcess

    log = tmp_path_factory.mktemp("server") / "log"
    template = Path(os.environ["POLYKV_LLAMA_SOURCE"]) / TEMPLATE
    command = ("-m", os.environ["POLYKV_MODEL"], *FLAGS, str(template))
    with ServerProcess(os.environ["POLYKV_SERVER"], command, log) as server:
        yield server.base_url


@pytest.fixture
def client(server_url: str) -> Iterator[ControlClient]:
    """A client of the server, which has no pools and no sessions before and after."""
    client = ControlClient(server_url)
    clear(client)
    yield client
    clear(client)


def clear(client: ControlClient) -> None:
    client.end_all_sessions()
    for pool in reversed(client.pools()["pools"]):
        for _ in range(pool["refs"]):
            client.release_pool(pool["pool_id"], subtree=True, force=True)
