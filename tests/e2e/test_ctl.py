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


def test_an_operator_grows_and_prunes_a_tree(api: Api) -> None:
    root = api.create_pool(messages=CHAT, name="rivers")["pool_id"]
    more = json.dumps([{"role": "user", "content": "The Nile, please."}])
    said = output(api, "fork", "rivers", "--append-messages", "-", "--name", "nile", stdin=more)
    nile = api.get("/polykv/pools/nile")
    assert (nile["parent"], nile["shared_len"]) == (root, nile["branch_pos"])
    assert f"{nile['shared_len']} shared with {root}, {nile['own_len']} computed" in said
    output(api, "fork", "nile", "--append-prompt", " And the Rhine.", "--name", "rhine")
    branch = ("fork", "rivers", "--prompt", "Another text.", "--branch-pos", "0", "--name", "other")
    output(api, *branch)

    tree = output(api, "pools").splitlines()[3:]
    other, rhine = (api.get(f"/polykv/pools/{name}")["pool_id"] for name in ("other", "rhine"))
    titles = [f"{root} rivers", f"├─ {nile['pool_id']} nile", f"│  └─ {rhine} rhine"]
    titles.append(f"└─ {other} other")
    assert [line.split("  ")[0] for line in tree[:2]] == titles[:2]
    assert [line.startswith(title) for line, title in zip(tree, titles)] == [True] * 4
    assert output(api, "pools", "nile").splitlines()[3].startswith(f"{nile['pool_id']} nile")

    assert output(api, "evict", "other") == f"pool {other}: 1 reference, 1 evicted\n"
    assert "evicted" in output(api, "pools", "other")
    output(api, "fork", "rivers", "--append-prompt", "x", "--name", "late")
    mismatch = ctl(api, "fork", "rivers", "--prompt", "Something else", "--branch-pos", "5")
    assert (mismatch.returncode, mismatch.stdout) == (1, "")
    assert "HTTP 409" in mismatch.stderr and "mismatch_pos" in mismatch.stderr
    assert ctl(api, "release", "rivers").returncode == 1  # it has children
    output(api, "release", "rivers", "--subtree", "--force")
    assert api.pool_ids() == []


def test_a_refusal_is_one_line_and_1(api: Api) -> None:
    done = ctl(api, "release", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("polykv ctl: ")
    assert done.stderr.endswith(" (HTTP 404, pool_not_found)\n")
    assert done.stderr.count("\n") == 1
