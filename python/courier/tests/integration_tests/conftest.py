"""A real server with a tiny model, and courier as a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "bench"))

from harness.server import ServerProcess

from tests.integration_tests.courier_process import WORKLOAD, Courier

FLAGS = ("-c", "4096", "-np", "4", "--kv-unified", "--polykv-grace-ms", "2000")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    model = Path(os.environ["POLYKV_TINY_MODELS"]) / "tiny-llama.gguf"
    log = tmp_path_factory.mktemp("server") / "log"
    with ServerProcess(os.environ["POLYKV_SERVER"], ("-m", str(model), *FLAGS), log) as server:
        yield server


@pytest.fixture
def courier(server: ServerProcess, tmp_path: Path) -> Iterator[Courier]:
    (tmp_path / "w.yaml").write_text(WORKLOAD)
    courier = Courier(tmp_path, server.base_url)
    yield courier
    courier.kill()
