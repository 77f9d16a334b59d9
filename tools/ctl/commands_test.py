"""Commands against a server that records what it is asked and answers what the test says."""

from __future__ import annotations

import io
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ctl.commands import run

CREATED = {"pool_id": 7000, "name": "x", "prefix_len": 3, "n_prefilled": 3, "created": True}
CHAT = {
    "model": "any",
    "messages": [{"role": "system", "content": "Be brief."}],
    "tools": [{"type": "function", "function": {"name": "look_up"}}],
    "temperature": 0.5,
}


class FakeServer:
    """Answers every request with `status` and `answer`; keeps (method, path, body, headers)."""

    def __init__(self) -> None:
        self.status = 200
        self.answer: Any = {}
        self.requests: list[tuple[str, str, Any, Any]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                body = json.loads(data) if data else None
                fake.requests.append((self.command, self.path, body, self.headers))
                raw = fake.answer if isinstance(fake.answer, bytes) else b""
                payload = raw or json.dumps(fake.answer).encode()
                self.send_response(fake.status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_POST = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    server = FakeServer()
    monkeypatch.setenv("POLYKV_URL", server.url)
    monkeypatch.delenv("LLAMA_API_KEY", raising=False)
    yield server
    server.stop()


def refusal(message: str, status: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"code": status, "message": message, "type": kind, **fields}}


def test_pools_and_sessions_ask_the_status_routes(server: FakeServer, capsys: Any) -> None:
    assert run(["pools"]) == run(["pools", "a/b c"]) == run(["sessions"]) == 0
    assert [request[:2] for request in server.requests] == [
        ("GET", "/polykv/pools"),
        ("GET", "/polykv/pools/a%2Fb%20c"),
        ("GET", "/polykv/sessions"),
    ]
    output = capsys.readouterr()
    assert "no pools" in output.out and "no sessions" in output.out
    assert output.err == ""


def test_json_prints_the_answer_as_it_is(server: FakeServer, capsys: Any) -> None:
    server.answer = {"pools": [], "boot_id": 1}
    assert run(["pools", "--json"]) == run(["--json", "pools"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [server.answer, server.answer]


def test_top_once_is_one_picture(server: FakeServer, capsys: Any) -> None:
    server.answer = {"pools": [], "sessions": [{"session_id": "s", "state": "idle"}]}
    assert run(["top", "--once"]) == 0
    output = capsys.readouterr().out
    assert "sessions: 1 idle" in output and "* s" in output
    assert "\x1b" not in output


def test_create_sends_only_what_was_asked_for(
    server: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    server.answer = CREATED
    text, chat = tmp_path / "text", tmp_path / "chat.json"
    text.write_bytes("Zwölf\n".encode())
    chat.write_text(json.dumps(CHAT))
    typed = io.BytesIO(json.dumps(CHAT["messages"]).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(typed))
    for arguments, body in (
        (["--prompt", "abc"], {"prompt": "abc"}),
        (
            ["--file", str(text), "--name", "n", "--pin"],
            {"prompt": "Zwölf\n", "name": "n", "pin": True},
        ),
        (["--messages", str(chat)], {"messages": CHAT["messages"], "tools": CHAT["tools"]}),
        (["--messages", "-"], {"messages": CHAT["messages"]}),
        (
            ["--from-session", "s", "--unique", "--no-wait"],
            {"from_session": "s", "unique": True, "wait": False},
        ),
    ):
        assert run(["create", *arguments]) == 0
        assert server.requests[-1][:3] == ("POST", "/polykv/pools", body)
        assert server.requests[-1][3]["Content-Type"] == "application/json"
    assert "pool 7000 (x): 3 tokens" in capsys.readouterr().out


def test_fork_takes_the_whole_prefix_or_what_is_appended(
    server: FakeServer, tmp_path: Path
) -> None:
    server.answer = CREATED
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps(CHAT))
    for arguments, body in (
        (["--prompt", "abc", "--branch-pos", "0"], {"prompt": "abc", "branch_pos": 0}),
        (["--append-prompt", " d", "--name", "n"], {"append_prompt": " d", "name": "n"}),
        (["--append-file", str(chat)], {"append_prompt": json.dumps(CHAT)}),
        (
            ["--append-messages", str(chat)],
            {"append_messages": CHAT["messages"], "tools": CHAT["tools"]},
        ),
    ):
        assert run(["fork", "root", *arguments]) == 0
        assert server.requests[-1][:3] == ("POST", "/polykv/pools/root/fork", body)


def test_changes_of_one_pool(server: FakeServer, capsys: Any) -> None:
    server.answer = {"pool_id": 7000, "refs": 1, "released": False, "pinned": False}
    for arguments, method, path, body in (
        (["release", "x"], "DELETE", "/polykv/pools/x", None),
        (["release", "x", "--force"], "DELETE", "/polykv/pools/x?force=1", None),
        (
            ["release", "x", "--force", "--subtree"],
            "DELETE",
            "/polykv/pools/x?subtree=1&force=1",
            None,
        ),
        (["pin", "x"], "POST", "/polykv/pools/x/pin", {}),
        (["pin", "x", "--ttl", "1.5"], "POST", "/polykv/pools/x/pin", {"ttl_ms": 1500}),
        (["unpin", "x"], "POST", "/polykv/pools/x/unpin", {}),
        (["evict", "x"], "POST", "/polykv/pools/x/evict", {}),
        (["flush", "x"], "POST", "/polykv/pools/x/flush", {}),
    ):
        assert run(arguments) == 0
        assert server.requests[-1][:3] == (method, path, body)
    assert capsys.readouterr().out == "pool 7000: 1 reference\n" * 8


def test_a_break_in_the_template_is_told(server: FakeServer, tmp_path: Path, capsys: Any) -> None:
    server.answer = {**CREATED, "template_break": 3}
    chat = tmp_path / "chat.json"
    chat.write_text("[]")
    assert run(["create", "--messages", str(chat)]) == 0
    assert "ends at token 3" in capsys.readouterr().err


def test_the_key_is_sent_and_the_option_wins(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(["pools"])
    assert "Authorization" not in server.requests[-1][3]
    monkeypatch.setenv("LLAMA_API_KEY", "first,second")
    run(["pools"])
    assert server.requests[-1][3]["Authorization"] == "Bearer first"
    run(["pools", "--api-key", "mine"])
    assert server.requests[-1][3]["Authorization"] == "Bearer mine"


def test_the_address_may_have_a_path_and_lack_a_scheme(server: FakeServer) -> None:
    assert run(["--url", server.url + "/llm/", "pools"]) == 0
    assert server.requests[-1][1] == "/llm/polykv/pools"
    assert run(["pools", "--url", server.url.removeprefix("http://")]) == 0
    assert server.requests[-1][1] == "/polykv/pools"


def fails(arguments: list[str], status: int, capsys: Any) -> str:
    """Asserts that the command fails with one line on standard error, and returns that."""
    try:
        code = run(arguments)
    except SystemExit as end:
        code = end.code
    output = capsys.readouterr()
    assert (code, output.out) == (status, "")
    assert output.err.endswith("\n") and output.err[:-1].isprintable(), output.err
    return output.err


def test_what_the_server_refuses_is_one_line(server: FakeServer, capsys: Any) -> None:
    server.status = 409
    server.answer = refusal("tokens\ndiffer", 409, "prefix_mismatch", mismatch_pos=12)
    error = fails(["fork", "x", "--prompt", "y"], 1, capsys)
    assert error == (
        "polykv ctl: tokens\\x0adiffer (HTTP 409, prefix_mismatch, mismatch_pos 12)\n"
    )
    for answer in (b"<html>", [1], {"error": "no"}):
        server.answer = answer
        assert "HTTP 409" in fails(["pools"], 1, capsys)
    server.status, server.answer = 200, b"<html>"
    assert "is this a PolyKV server?" in fails(["pools"], 1, capsys)


def test_a_server_that_is_not_there_is_said_plainly(capsys: Any) -> None:
    gone = FakeServer()
    gone.stop()
    assert "is it running?" in fails(["pools", "--url", gone.url], 1, capsys)
    assert "is it running?" in fails(["top", "--url", gone.url], 1, capsys)
    for url in ("ftp://x", "http://", "http://h:port", "http://h:99999"):
        assert "is not the address" in fails(["pools", "--url", url], 1, capsys)


def test_files_that_cannot_be_used_are_named(
    server: FakeServer, tmp_path: Path, capsys: Any
) -> None:
    bad = tmp_path / "bad"
    for data in (b"\xff", b"{", b"3", b"{}"):
        bad.write_bytes(data)
        assert str(bad) in fails(["create", "--messages", str(bad)], 1, capsys)
    assert "No such file" in fails(["create", "--file", str(tmp_path / "none")], 1, capsys)
    assert server.requests == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nothing"],
        ["create"],
        ["create", "--prompt", "a", "--file", "b"],
        ["fork", "--prompt", "a"],
        ["fork", "x", "--prompt", "a", "--append-prompt", "b"],
        ["fork", "x", "--prompt", "a", "--branch-pos", "-1"],
        ["create", "--prompt", "a", "--append-prompt", "b"],
        ["release"],
        ["pin", "x", "--ttl", "soon"],
        ["pools", "--\x1bx"],
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(arguments: list[str], capsys: Any) -> None:
    assert "--help" in fails(arguments, 2, capsys)


def test_help_has_examples(capsys: Any) -> None:
    with pytest.raises(SystemExit) as end:
        run(["--help"])
    assert end.value.code == 0
    assert "./polykv ctl create --name" in capsys.readouterr().out
