"""./polykv ctl against a server: what it prints is what the server holds."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support import Api

LAUNCHER = Path(__file__).resolve().parents[2] / "polykv"
CHAT = [{"role": "system", "content": "You answer questions about rivers."}]


def ctl(api: Api, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [LAUNCHER, "ctl", *arguments, "--url", api.base_url]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)


def output(api: Api, *arguments: str, stdin: str = "") -> str:
    done = ctl(api, *arguments, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_an_operator_makes_looks_at_and_releases_pools(api: Api) -> None:
    said = output(api, "create", "--name", "rivers", "--messages", "-", stdin=json.dumps(CHAT))
    pool = api.get("/polykv/pools/rivers")
    pool_id = pool["pool_id"]
    assert said.startswith(f"pool {pool_id} (rivers): {pool['prefix_len']} tokens, ")
    again = json.loads(output(api, "create", "--messages", "-", "--json", stdin=json.dumps(CHAT)))
    assert (again["pool_id"], again["created"]) == (pool_id, False)

    body = {"messages": [*CHAT, {"role": "user", "content": "Why?"}], "max_tokens": 4}
    api.post("/v1/chat/completions", {**body, "pool_id": "rivers", "session_id": "agent-1"})
    tree = output(api, "pools")
    assert f"cells {api.cells_used()} of 8,192" in tree
    assert f"{pool_id} rivers" in tree
    assert "└─ * agent-1" in tree
    session = api.sessions()["agent-1"]
    row = output(api, "sessions").splitlines()[1].split()
    assert row[:3] == ["agent-1", str(pool_id), str(session["n_tokens"])]
    assert "sessions: 1 idle" in output(api, "top", "--once")

    assert output(api, "pin", "rivers") == f"pool {pool_id}: 2 references, pinned\n"
    assert output(api, "unpin", "rivers") == f"pool {pool_id}: 2 references\n"
    assert output(api, "release", "rivers") == f"pool {pool_id}: 1 reference\n"
    assert output(api, "release", "rivers", "--force") == f"pool {pool_id}: released\n"
    assert api.pool_ids() == []


def test_a_refusal_is_one_line_and_1(api: Api) -> None:
    done = ctl(api, "release", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("polykv ctl: ")
    assert done.stderr.endswith(" (HTTP 404, pool_not_found)\n")
    assert done.stderr.count("\n") == 1
