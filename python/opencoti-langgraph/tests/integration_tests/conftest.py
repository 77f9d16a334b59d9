"""One real server for the whole run, with the model and the binary that ./polykv test names."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opencoti_langgraph.control import ControlClient

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "bench"))

FLAGS = ("-c", "16384", "-np", "8", "--kv-unified")


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    from harness.server import ServerProcess

    log = tmp_path_factory.mktemp("server") / "log"
    command = ("-m", os.environ["POLYKV_MODEL"], *FLAGS)
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
