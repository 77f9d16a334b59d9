"""The command as a user has it, in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from courier.cli import main
from courier.journal import Journal, read
from tests.unit_tests.scripted_server import Reply, ScriptedServer, refusal

WORKLOAD = """
name: small
floor: {target_tps_per_session: 10}
pool: {system: Be brief.}
steps: [{id: ask, prompt: "About $topic?"}]
packages: [{id: a, vars: {topic: cats}}, {id: b, vars: {topic: dogs}}]
"""


@pytest.fixture
def workload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "w.yaml"
    path.write_text(WORKLOAD)
    return str(path)


def run(server: ScriptedServer, *arguments: str) -> int:
    return main(["run", *arguments, "--url", server.url])


def test_a_run_leaves_state_and_report(
    server: ScriptedServer, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(server, workload) == 0
    output = capsys.readouterr().out
    assert "done a/ask: 2 tokens" in output
    assert "report: w.run/report.html" in output
    assert sorted(path.name for path in Path("w.run").iterdir()) == [
        "report.html",
        "report.json",
        "state.jsonl",
    ]
    assert main(["report", "w.run"]) == 0


def test_the_same_command_does_nothing_twice_unless_it_starts_over(
    server: ScriptedServer, workload: str
) -> None:
    assert run(server, workload) == 0
    assert run(server, workload) == 0
    assert len(server.asks) == 2
    assert run(server, workload, "--fresh") == 0
    assert len(server.asks) == 4
    assert run(server, workload, "--naive") == 0  # has a folder of its own
    assert len(server.asks) == 6


def test_another_workload_or_mode_does_not_go_on_with_a_run(
    server: ScriptedServer, workload: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(server, workload, "--out", "r") == 0
    assert run(server, workload, "--out", "r", "--naive") == 2
    assert "this run is gated" in capsys.readouterr().err
    assert run(server, workload, "--out", "r", "--floor", "12") == 2
    Path(workload).write_text(WORKLOAD.replace("Be brief", "Be long"))
    assert run(server, workload, "--out", "r") == 2
    assert "not the one that this run began with" in capsys.readouterr().err


def test_the_floor_can_be_given(server: ScriptedServer, workload: str) -> None:
    assert run(server, workload, "--floor", "12.5") == 0
    assert server.policies[0]["target_tps_per_session"] == 12.5
    with pytest.raises(SystemExit):
        run(server, workload, "--floor", "-1")


def test_what_fails_is_in_the_exit_code(server: ScriptedServer, workload: str) -> None:
    server.reply = lambda ask: refusal(400) if "cats" in ask.prompt else Reply()
    assert run(server, workload) == 1
    assert main(["run", workload, "--out", "x", "--url", "http://127.0.0.1:9"]) == 3
    assert main(["run", "nothing.yaml", "--url", server.url]) == 2
    journal = Journal(Path("busy/state.jsonl"))
    assert run(server, workload, "--out", "busy") == 2
    journal.close()


def test_an_interrupt_keeps_what_is_finished(
    server: ScriptedServer, workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object, number: int, act: object) -> None:
        handlers.append(act)

    handlers: list[object] = []
    monkeypatch.setattr(asyncio.unix_events._UnixSelectorEventLoop, "add_signal_handler", interrupt)
    calls = []

    def reply(ask: object) -> Reply:
        calls.append(ask)
        if len(calls) == 2:
            handlers[0]()  # type: ignore[operator]
        return Reply(piece_s=0.3 if len(calls) == 2 else 0.0)

    server.reply = reply
    assert run(server, workload) == 130
    kinds = [record["kind"] for record in read(Path("w.run/state.jsonl"))]
    assert kinds.count("step") == 1
    assert kinds[-1] == "end"
    assert run(server, workload) == 0
