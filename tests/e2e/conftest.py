"""Servers for the tests: started once per set of flags, their logs shown when a test fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from harness import text
from harness.server import ServerProcess
from servers import Servers
from support import Api

# The set of flags that most tests use.
MAIN_FLAGS = ("-c", "8192", "-np", "4", "--kv-unified", "--metrics", "--slots", "--props")

# Of the formats that llama.cpp knows, one that leaves no room for talk where a call is required.
TOOL_TEMPLATE = "models/templates/meetkai-functionary-medium-v3.2.jinja"
TOOL_FLAGS = ("-c", "2048", "-np", "2", "--kv-unified", "--chat-template-file")

StartServer = Callable[..., ServerProcess]


def _path(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.fail(f"set {variable}: the end-to-end tests need it (see ./polykv test)")
    path = Path(value)
    if not path.exists():
        pytest.fail(f"{variable} is {value}, which does not exist")
    return path.resolve()


@pytest.fixture(scope="session")
def server_binary() -> Path:
    return _path("POLYKV_SERVER")


@pytest.fixture(scope="session")
def peer_binary() -> Path:
    return _path("POLYKV_PEER")


@pytest.fixture(scope="session")
def model() -> Path:
    return _path("POLYKV_MODEL")


@pytest.fixture(scope="session")
def llama_source() -> Path:
    return _path("POLYKV_LLAMA_SOURCE")


@pytest.fixture(scope="session")
def tiny_models() -> Path:
    """The folder of the models that tests/peer/tiny_models.py writes."""
    return _path("POLYKV_TINY_MODELS")


@pytest.fixture(scope="session")
def window_model() -> Path:
    """Gemma 3 270M: a sliding window of 512 tokens."""
    return _path("POLYKV_WINDOW_MODEL")


@pytest.fixture(scope="session")
def servers(
    model: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Servers]:
    servers = Servers(model, tmp_path_factory.mktemp("logs"))
    request.config.stash[SERVERS] = servers
    yield servers
    servers.stop_all()


@pytest.fixture
def start_server(servers: Servers, server_binary: Path) -> Iterator[StartServer]:
    """Starts servers that only this test uses, cold; called with flags."""
    own: list[ServerProcess] = []

    def start(*flags: str) -> ServerProcess:
        own.append(servers.start(server_binary, flags))
        return own[-1]

    yield start
    for server in own:
        server.stop()


@pytest.fixture
def api(servers: Servers, server_binary: Path) -> Iterator[Api]:
    """The shared server with MAIN_FLAGS, without pools and sessions before and after."""
    server = servers.shared(server_binary, MAIN_FLAGS)
    api = Api(server.base_url)
    api.clear()
    yield api
    assert server.process.poll() is None, "the server has died"
    api.clear()


@pytest.fixture(scope="session")
def tool_api(servers: Servers, server_binary: Path, llama_source: Path) -> Api:
    """A shared server whose chat template knows tools; nobody makes pools or sessions there."""
    template = str(llama_source / TOOL_TEMPLATE)
    return Api(servers.shared(server_binary, (*TOOL_FLAGS, template)).base_url)


@pytest.fixture(scope="session")
def document(llama_source: Path) -> str:
    """A long real text."""
    return text.document(llama_source, ("LICENSE", "README.md", "CONTRIBUTING.md"))


SERVERS: pytest.StashKey[Servers] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    servers = item.config.stash.get(SERVERS, None)
    if report.failed and servers is not None:
        report.sections.extend((f"log of {title}", tail) for title, tail in servers.logs())
    return report
