from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from courier.workload import Workload
from tests.unit_tests.scripted_server import ScriptedServer
from tests.unit_tests.small_workload import small_workload


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("courier.fleet.TICK_S", 0.03)
    monkeypatch.setattr("courier.fleet.FIRST_DELAY_S", 0.03)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


@pytest.fixture
def workload() -> Workload:
    return small_workload()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "run" / "state.jsonl"
