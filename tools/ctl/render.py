"""What the server's answers look like on a terminal. Pure: answers in, lines out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ctl.text import count, duration, rate, safe, size, table

Answer = Mapping[str, Any]

POOL_HEAD = ("POOL", "PREFIX", "BRANCH", "SHARED", "OWN", "OWN KV", "SUBTREE", "REFS", "STATE")
SESSION_HEAD = (
    "SESSION",
    "POOL",
    "TOKENS",
    "SHARED",
    "OWN",
    "OWN KV",
    "CONTEXT",
    "TTFT",
    "USED",
    "STATE",
)


def head_line(tree: Answer) -> str:
    """One line on the whole server, from GET /polykv/pools."""
    used, total = tree.get("kv_cells_used", 0), tree.get("kv_cells_total", 0)
    percent = f" ({100 * used / total:.0f} %)" if total else ""
    parts = [
        f"boot {tree.get('boot_id', '?')}",
        f"cells {count(used)} of {count(total)}{percent}",
    ]
    if tree.get("kv_span") is not None:
        parts.append(f"span {count(tree['kv_span'])}")
    parts.append(f"sequences {tree.get('seq_ids_used', '?')} of {tree.get('seq_ids_max', '?')}")
    parts.append(f"depth {tree.get('tree_depth', '?')}")
    return safe(" · ".join(parts))


def pool_lines(tree: Answer, columns: int | None) -> list[str]:
    """The pools as a tree, each with the sessions attached to it."""
    pools = tree.get("pools") or []
    if not pools:
        return ["no pools"]
    known = {pool["pool_id"] for pool in pools}
    children: dict[Any, list[Answer]] = {}
    for pool in pools:
        parent = pool.get("parent")
        children.setdefault(parent if parent in known else None, []).append(pool)
    rows = [
        row for root in children[None] for row in _pool_rows(root, children, lead="", below="")
    ]
    return table(POOL_HEAD, rows, columns)


def _pool_rows(
    pool: Answer, children: Mapping[Any, list[Answer]], lead: str, below: str
) -> Iterator[list[str]]:
    """`lead` stands before the pool's own name, `below` before what hangs on it."""
    title = f"{pool['pool_id']} {pool['name']}" if pool.get("name") else f"{pool['pool_id']}"
    yield [
        lead + safe(title),
        count(pool.get("prefix_len")),
        count(pool.get("branch_pos")) if lead else "",
        count(pool.get("shared_len")) if lead else "",
        count(pool.get("own_len")),
        size(pool.get("own_kv_bytes")),
        size(pool.get("subtree_kv_bytes")),
        count(pool.get("refs")),
        safe(_pool_state(pool)),
    ]
    below_it = [*(pool.get("sessions") or []), *children.get(pool["pool_id"], [])]
    for entry in below_it:
        last = entry is below_it[-1]
        branch, rest = (below + "└─ ", below + "   ") if last else (below + "├─ ", below + "│  ")
        if "session_id" in entry:
            yield _attached_row(entry, branch)
        else:
            yield from _pool_rows(entry, children, branch, rest)


def _pool_state(pool: Answer) -> str:
    words = [str(pool.get("residency", "?"))]
    if words[0] == "materializing":
        words[0] += f" {count(pool.get('n_prefilled'))} of {count(pool.get('own_len'))}"
    if pool.get("orphaned_pin"):
        words.append("orphaned pin")
    elif pool.get("pinned"):
        words.append("pinned")
    elif pool.get("auto_pinned"):
        words.append("in use")
    return ", ".join(words)


def _attached_row(session: Answer, lead: str) -> list[str]:
    """A session below its pool; only what it has for itself counts here."""
    title = lead + "* " + safe(session["session_id"])
    own, kv = count(session.get("suffix_n_tokens")), size(session.get("marginal_kv_bytes"))
    return [title, "", "", "", own, kv, "", "", safe(_session_state(session))]


def _session_state(session: Answer) -> str:
    state, tps = str(session.get("state", "?")), rate(session.get("tps_ewma"))
    return f"{state}, {tps}" if tps else state


def session_lines(answer: Answer, columns: int | None, now_ms: float) -> list[str]:
    """Every session that the server knows, from GET /polykv/sessions."""
    sessions = answer.get("sessions") or []
    if not sessions:
        return ["no sessions"]
    return table(SESSION_HEAD, [_session_row(session, now_ms) for session in sessions], columns)


def _session_row(session: Answer, now_ms: float) -> list[str]:
    pool, ttft = session.get("pool_id"), session.get("ttft_ms")
    return [
        safe(session["session_id"]),
        "" if pool is None else safe(pool),
        count(session.get("n_tokens")),
        count(session.get("n_shared")),
        count(session.get("suffix_n_tokens")),
        size(session.get("marginal_kv_bytes")),
        f"{count(session.get('ctx_used'))}/{count(session.get('ctx_total'))}",
        "" if ttft is None else f"{ttft:.0f} ms",
        _age(session, now_ms),
        safe(_session_state(session)),
    ]


def _age(session: Answer, now_ms: float) -> str:
    used = session.get("last_active_ts")
    if used is None:
        return ""
    return f"{duration((now_ms - used) / 1000)} ago" if session.get("state") == "idle" else "now"


def top_lines(tree: Answer, sessions: Answer, columns: int | None) -> list[str]:
    """One picture of the server: totals, the pool tree, and the sessions without a pool."""
    known = sessions.get("sessions") or []
    rates = [s["tps_ewma"] for s in known if s.get("tps_ewma") is not None]
    total = f", {rate(sum(rates))} in all" if rates else ""
    states: dict[str, int] = {}
    for session in known:
        states[str(session.get("state", "?"))] = states.get(str(session.get("state", "?")), 0) + 1
    by_state = ", ".join(f"{n} {state}" for state, n in sorted(states.items())) or "none"
    lines = [head_line(tree), safe(f"sessions: {by_state}{total}"), ""]
    lines += pool_lines(tree, columns)
    alone = [session for session in known if session.get("pool_id") is None]
    if alone:
        rows = [
            ["* " + safe(s["session_id"]), *_attached_row(s, "")[4:6], safe(_session_state(s))]
            for s in alone
        ]
        lines += ["", *table(("WITHOUT A POOL", "OWN", "OWN KV", "STATE"), rows, columns)]
    return lines


def created_line(pool: Answer) -> str:
    """The outcome of a create or a fork."""
    title = f"pool {pool.get('pool_id', '?')}" + (f" ({pool['name']})" if pool.get("name") else "")
    length = f"{count(pool.get('prefix_len'))} tokens"
    if pool.get("residency") == "materializing":
        return safe(f"{title}: {length}, being computed")
    kv = size(pool.get("own_kv_bytes"))
    if not pool.get("created"):
        return safe(f"{title}: {length}, was there already; one reference more")
    seconds = float(pool.get("prefill_ms") or 0) / 1000
    parts = [length]
    if pool.get("shared_len"):
        parts.append(f"{count(pool['shared_len'])} shared with {pool.get('parent')}")
    elif pool.get("miss_reason"):
        parts.append(f"nothing shared ({pool['miss_reason']})")
    parts.append(f"{count(pool.get('n_prefilled'))} computed in {seconds:.1f} s")
    return safe(f"{title}: {', '.join(parts)}, {kv} of its own")


def break_line(pool: Answer) -> str | None:
    """A warning when the pool is shorter than its messages."""
    position = pool.get("template_break")
    if position is None:
        return None
    return (
        f"the pool ends at token {count(position)}, before its messages end: what the chat "
        "template writes from there on depends on the turns that follow"
    )


def change_line(pool: Answer) -> str:
    """The outcome of release, pin, unpin, evict, flush."""
    title = f"pool {pool.get('pool_id', '?')}"
    if pool.get("released"):
        return safe(f"{title}: released")
    refs = pool.get("refs")
    words = [] if refs is None else [f"{count(refs)} reference{'' if refs == 1 else 's'}"]
    if pool.get("pinned"):
        words.append("pinned")
    if pool.get("release_in_ms") is not None:
        words.append(f"goes in {duration(pool['release_in_ms'] / 1000)}")
    if pool.get("n_evicted"):
        words.append(f"{count(pool['n_evicted'])} evicted")
    return safe(f"{title}: {', '.join(words)}" if words else title)
