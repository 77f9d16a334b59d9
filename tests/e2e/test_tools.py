"""llama-server's built-in tools (--tools), as far as it does not test them itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import MAIN_FLAGS
from servers import Servers
from support import Api, assert_problem, eventually

TOOLS = "/tools"


@pytest.fixture(scope="module")
def tools(servers: Servers, server_binary: Path) -> Iterator[Api]:
    server = servers.start(server_binary, (*MAIN_FLAGS, "--tools", "exec_shell_command"))
    yield Api(server.base_url)
    assert server.stop() == 0


def command(text: str, **fields: object) -> dict[str, object]:
    return {"tool": "exec_shell_command", "params": {"command": text, "timeout": 60}, **fields}


def test_the_chosen_tools_are_listed(tools: Api) -> None:
    assert [tool["tool"] for tool in tools.get(TOOLS)] == ["exec_shell_command"]


@pytest.mark.parametrize("header", ["Origin", "Host"])
def test_a_foreign_web_page_may_not_call_a_tool(tools: Api, tmp_path: Path, header: str) -> None:
    made = tmp_path / "made"
    headers = {header: "http://evil.example" if header == "Origin" else "evil.example"}
    reply = tools.send("POST", TOOLS, command(f"touch {made}"), headers)
    assert_problem(reply, 403)
    assert not made.exists()
    tools.post(TOOLS, command(f"touch {made}"))
    assert made.exists()


def test_a_command_ends_when_its_client_has_gone(tools: Api, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    text = f"echo $$ > {pid}; while echo on; do sleep 0.05; done"
    with tools.open(TOOLS, command(text, stream=True)) as exchange:
        assert exchange.head()[0] == 200
        process = Path("/proc") / eventually(lambda: pid.exists() and pid.read_text().strip(), "start")
        assert process.exists()
    eventually(lambda: not process.exists(), "the end of the command", timeout_s=30)
