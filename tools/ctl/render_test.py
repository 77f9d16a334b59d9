"""Answers of a server become lines: the tree, widths, and names that try to be more than names."""

from __future__ import annotations

from typing import Any

from ctl import render
from ctl.text import fit, safe, size, table, width


def pool(pool_id: int, parent: int = -1, **fields: Any) -> dict[str, Any]:
    return {
        "pool_id": pool_id,
        "name": None,
        "parent": parent,
        "branch_pos": 0,
        "shared_len": 0,
        "prefix_len": 1200,
        "own_len": 1200,
        "own_kv_bytes": 27_648_000,
        "subtree_kv_bytes": 27_648_000,
        "residency": "resident",
        "n_prefilled": 1200,
        "refs": 1,
        "pinned": False,
        "auto_pinned": False,
        "orphaned_pin": False,
        "children": [],
        "sessions": [],
        **fields,
    }


def fork(pool_id: int, parent: int, shared: int, length: int, **fields: Any) -> dict[str, Any]:
    lengths = {"branch_pos": shared, "shared_len": shared, "prefix_len": length}
    return pool(pool_id, parent, own_len=length - shared, **lengths, **fields)


def attached(session_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "suffix_n_tokens": 40,
        "marginal_kv_bytes": 921_600,
        "tps_ewma": None,
        "state": "idle",
        **fields,
    }


TREE = {
    "boot_id": 7000,
    "tree_depth": 3,
    "seq_ids_used": 9,
    "seq_ids_max": 30,
    "kv_cells_used": 1412,
    "kv_cells_total": 8192,
    "pools": [
        pool(7000, name="system", auto_pinned=True),
        fork(7001, 7000, 1200, 1300, name="france"),
        fork(7002, 7000, 900, 1000),
        fork(
            7003,
            7001,
            1300,
            1312,
            name="paris",
            sessions=[attached("agent-1", state="decoding", tps_ewma=52.63), attached("agent-2")],
        ),
        pool(8000, name="other", pinned=True, orphaned_pin=True, residency="evicted"),
    ],
}


DRAWN = """\
POOL                PREFIX  BRANCH  SHARED    OWN     OWN KV   SUBTREE  REFS  STATE
7000 system          1,200                  1,200   26.4 MiB  26.4 MiB     1  resident, in use
├─ 7001 france       1,300   1,200   1,200    100   26.4 MiB  26.4 MiB     1  resident
│  └─ 7003 paris     1,312   1,300   1,300     12   26.4 MiB  26.4 MiB     1  resident
│     ├─ * agent-1                             40  900.0 KiB                  decoding, 52.6 t/s
│     └─ * agent-2                             40  900.0 KiB                  idle
└─ 7002              1,000     900     900    100   26.4 MiB  26.4 MiB     1  resident
8000 other           1,200                  1,200   26.4 MiB  26.4 MiB     1  evicted, orphaned pin
"""


def test_the_tree_is_drawn_with_its_figures_in_columns() -> None:
    assert render.pool_lines(TREE, None) == DRAWN.splitlines()


def test_the_head_counts_cells_and_sequences() -> None:
    line = "boot 7000 · cells 1,412 of 8,192 (17 %) · sequences 9 of 30 · depth 3"
    assert render.head_line(TREE) == line
    assert "span 4,000" in render.head_line({**TREE, "kv_span": 4000})


def test_a_subtree_has_its_pool_as_root() -> None:
    lines = render.pool_lines({"pools": [TREE["pools"][1], TREE["pools"][3]]}, None)
    assert lines[1].startswith("7001 france ")
    assert lines[2].startswith("└─ 7003 paris ")


def test_no_pools_and_no_sessions_are_said() -> None:
    assert render.pool_lines({"pools": []}, None) == ["no pools"]
    assert render.session_lines({"sessions": []}, None, 0) == ["no sessions"]


def test_a_pool_that_is_being_computed_shows_how_far_it_is() -> None:
    tree = {"pools": [pool(1, residency="materializing", n_prefilled=512)]}
    assert render.pool_lines(tree, None)[1].endswith("materializing 512 of 1,200")


def test_no_line_is_wider_than_the_terminal() -> None:
    tree = {"pools": [pool(1, name="字" * 60), pool(2, name="n" * 200)]}
    for columns in (20, 40, 80, 100, 132):
        lines = render.pool_lines(tree, columns)
        assert max(map(width, lines)) <= columns
    narrow = render.pool_lines(tree, 100)
    assert "…" in narrow[1]
    assert narrow[1].endswith("resident")  # the name gives way, not the figures


def test_names_cannot_steer_the_terminal_or_the_table() -> None:
    evil = "a\x1b[2J\r\n\x9b0m\u202e\u2028\u200b"
    assert safe(evil) == "a\\x1b[2J\\x0d\\x0a\\x9b0m\\u{202e}\\u{2028}\\u{200b}"
    tree = {"pools": [pool(1, name=evil, residency=evil, sessions=[attached(evil, state=evil)])]}
    sessions = {"sessions": [{**attached(evil, state=evil), "pool_id": None}]}
    for lines in (render.top_lines(tree, sessions, None), render.session_lines(sessions, None, 0)):
        assert all(character.isprintable() for line in lines for character in line)
    assert render.created_line({"pool_id": 1, "name": evil}).isprintable()


def test_a_session_is_shown_with_its_rate_and_its_age() -> None:
    session = {
        "session_id": "agent-1",
        "pool_id": 7003,
        "slot_id": 2,
        "state": "decoding",
        "n_tokens": 1340,
        "n_shared": 1312,
        "suffix_n_tokens": 28,
        "marginal_kv_bytes": 645_120,
        "tps_ewma": 52.63,
        "ttft_ms": 140.4,
        "ctx_used": 1340,
        "ctx_total": 8192,
        "last_active_ts": 1_000_000,
    }
    head, line = render.session_lines({"sessions": [session]}, None, 1_125_000)
    assert head.split() == "SESSION POOL TOKENS SHARED OWN OWN KV CONTEXT TTFT USED STATE".split()
    for text in ("agent-1", "7003", "1,312", "630.0 KiB", "1,340/8,192", "140 ms", "now"):
        assert text in line
    assert line.endswith("decoding, 52.6 t/s")
    idle = {"sessions": [{**session, "state": "idle", "tps_ewma": None}]}
    assert render.session_lines(idle, None, 1_125_000)[1].endswith("2 min ago  idle")


def test_top_sums_up_the_sessions_and_lists_those_without_a_pool() -> None:
    sessions = {
        "sessions": [
            {**attached("a", state="decoding", tps_ewma=30.0), "pool_id": 7003},
            {**attached("b", state="decoding", tps_ewma=12.5), "pool_id": None},
            {**attached("c"), "pool_id": None},
        ]
    }
    lines = render.top_lines(TREE, sessions, None)
    assert lines[1] == "sessions: 2 decoding, 1 idle, 42.5 t/s in all"
    assert [line.split()[:2] for line in lines[-2:]] == [["*", "b"], ["*", "c"]]
    assert render.top_lines(TREE, {}, None)[1] == "sessions: none"


def test_outcomes_are_one_line() -> None:
    created = {"pool_id": 5, "name": "x", "prefix_len": 1200, "n_prefilled": 1200}
    created |= {"prefill_ms": 1234.5, "own_kv_bytes": 2048, "created": True}
    assert render.created_line(created) == (
        "pool 5 (x): 1,200 tokens, 1,200 computed in 1.2 s, 2.0 KiB of its own"
    )
    fork = {**created, "parent": 4, "shared_len": 900, "n_prefilled": 300}
    assert "1,200 tokens, 900 shared with 4, 300 computed in 1.2 s" in render.created_line(fork)
    missed = {**created, "parent": 4, "shared_len": 0, "miss_reason": "window"}
    assert "nothing shared (window)" in render.created_line(missed)
    assert "one reference more" in render.created_line({**created, "created": False})
    assert "being computed" in render.created_line({**created, "residency": "materializing"})
    assert render.break_line(created) is None
    assert "token 17," in str(render.break_line({"template_break": 17}))
    assert render.change_line({"pool_id": 5, "released": True}) == "pool 5: released"
    change = {"pool_id": 5, "released": False, "refs": 0, "pinned": True, "release_in_ms": 30000}
    assert render.change_line(change) == "pool 5: 0 references, pinned, goes in 30 s"
    evicted = {"pool_id": 5, "released": False, "refs": 2, "pinned": False, "n_evicted": 3}
    assert render.change_line(evicted) == "pool 5: 2 references, 3 evicted"


def test_units_and_widths() -> None:
    assert [size(n) for n in (0, 1023, 1024, 1536 * 1024, None)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 MiB",
        "",
    ]
    assert width("é日e\u0301") == 4
    assert fit("abcdef", 4) == "abc…"
    assert fit("日本語", 4) == "日…"
    assert fit("abc", 3) == "abc"
    assert table(("A", "B", "C"), [("x", "1", "y")], None) == ["A  B  C", "x  1  y"]
