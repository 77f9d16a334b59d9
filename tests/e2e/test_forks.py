"""The tree of pools over HTTP: the ways to fork, and what a fleet of agents does with it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support import Api, assert_problem, counted, counting, eventually, greedy

SYSTEM = {"role": "system", "content": "You help with rivers, lakes and seas. " * 8}
TASK = {"role": "user", "content": "Compare the Nile with the Rhine, point by point."}
REPLY = {"role": "assistant", "content": "The Nile is longer, the Rhine carries more ships."}


@pytest.fixture
def tokens(api: Api, document: str) -> list[int]:
    """400 tokens of a real text."""
    return api.tokens(document)[:400]


def child_ids(api: Api, pool: Any) -> list[int]:
    return api.pool(pool["pool_id"])["children"]


def cells_of_tree(api: Api) -> int:
    """Cells that the pools own, by what the server says of each."""
    tree = api.get("/polykv/pools")
    return sum(pool["own_kv_bytes"] for pool in tree["pools"]) // tree["bytes_per_cell"]


def test_sub_agents_share_the_task_that_the_main_agent_prepared(
    api: Api, tokens: list[int]
) -> None:
    """Journey A: system and tools, extended by the task, and four sub-agents at once on it."""
    root = api.create_pool(tokens=tokens[:200], name="system")
    task = api.fork(root, branch_pos=200, tokens=tokens[:300], name="task")
    assert (task["parent"], task["branch_pos"], task["shared_len"]) == (root["pool_id"], 200, 200)
    assert (task["prefix_len"], task["n_prefilled"], task["created"]) == (300, 100, True)

    suffixes = [api.tokens(counting(100 * i)) for i in range(1, 5)]
    alone = [api.complete(tokens[:300] + suffix, 12)["content"] for suffix in suffixes]
    with ThreadPoolExecutor(4) as pool:
        answers = list(
            pool.map(lambda s: api.complete(tokens[:300] + s, 12, pool_id="task"), suffixes)
        )
    assert [answer["content"] for answer in answers] == alone
    assert [answer["opencoti"]["cache_n"] for answer in answers] == [300] * 4
    assert api.get("/polykv/pools")["tree_depth"] == 2
    assert cells_of_tree(api) == 300


def test_groups_with_other_tools_share_the_preamble(api: Api, tokens: list[int]) -> None:
    """Journey B: a branch in the middle of a pool costs only what is behind it."""
    root = api.create_pool(tokens=tokens[:200])
    own = tokens[300:360]
    before = api.cells_used()
    branch = api.fork(root, branch_pos=120, tokens=tokens[:120] + own)
    assert (branch["shared_len"], branch["n_prefilled"]) == (120, 60)
    assert api.cells_used() - before == 60
    prompt = tokens[:120] + own + api.tokens(counting(7))
    answer = api.complete(prompt, 12, pool_id=branch["pool_id"])
    assert answer["opencoti"]["cache_n"] == 180
    assert answer["content"] == api.complete(prompt, 12, cache_prompt=False)["content"]
    assert child_ids(api, root) == [branch["pool_id"]]
    assert api.pool(root["pool_id"])["auto_pinned"] is True
    assert api.pool(root["pool_id"])["subtree_kv_bytes"] == 260 * branch["own_kv_bytes"] // 60


def test_compaction_gives_cells_back(api: Api, tokens: list[int]) -> None:
    """A long conversation is rewritten: a fork of the stable beginning, then the old tree goes."""
    system = api.create_pool(tokens=tokens[:100], name="stable")
    work = api.fork(system, tokens=tokens[:300], name="work")
    deep = api.fork(work, append_tokens=tokens[300:380])
    api.complete(
        tokens[:380] + api.tokens(counting(10)), 40, pool_id=deep["pool_id"], session_id="main"
    )
    before = api.cells_used()

    compact = api.fork(system, branch_pos=100, append_tokens=tokens[380:400], name="compact")
    answer = api.complete(
        tokens[:100] + tokens[380:400] + api.tokens(counting(10)),
        8,
        pool_id="compact",
        session_id="main",
    )
    assert answer["opencoti"]["cache_n"] == 120
    assert answer["content"].startswith(counted(40, 1))
    api.delete("/polykv/pools/work?subtree=1&force=1")
    assert api.cells_used() < before - 200
    assert set(api.pool_ids()) == {system["pool_id"], compact["pool_id"]}


def test_a_reference_keeps_a_pool_from_others_releases(api: Api, tokens: list[int]) -> None:
    mine = api.create_pool(tokens=tokens[:100])
    theirs = api.create_pool(tokens=tokens[:100])
    assert theirs["pool_id"] == mine["pool_id"] and theirs["created"] is False
    gone = api.delete(f"/polykv/pools/{mine['pool_id']}?force=1")
    assert gone["released"] is False and gone["refs"] == 1
    answer = api.complete(tokens[:120], 1, pool_id=theirs["pool_id"])
    assert answer["opencoti"]["cache_n"] == 100


def test_a_snapshot_of_a_session_that_decodes(api: Api, tokens: list[int]) -> None:
    prompt = tokens[:150] + api.tokens(counting(1))
    root = api.create_pool(tokens=tokens[:150])
    fields = {"pool_id": root["pool_id"], "session_id": "main", "ignore_eos": True}
    with ThreadPoolExecutor(1) as pool:
        talk = pool.submit(api.complete, prompt, 200, return_tokens=True, **fields)
        eventually(
            lambda: api.sessions().get("main", {}).get("n_tokens", 0) > len(prompt) + 10,
            "the session decodes",
        )
        snapshot = api.create_pool(from_session="main")
        answer = talk.result()
    assert snapshot["n_prefilled"] == 0
    assert snapshot["prefix_len"] > len(prompt) + 10
    whole = prompt + answer["tokens"]
    prefix = whole[: snapshot["prefix_len"]]
    question = prefix + whole[len(prefix) : len(prefix) + 20]
    shared = api.complete(question, 8, pool_id=snapshot["pool_id"])
    assert shared["opencoti"]["cache_n"] == snapshot["prefix_len"]
    api.end_session("main")
    again = api.complete(question, 8, pool_id=snapshot["pool_id"])
    assert again["content"] == shared["content"] == api.complete(question, 8)["content"]


def test_every_way_to_say_what_is_appended(api: Api) -> None:
    root = api.create_pool(messages=[SYSTEM])
    by_messages = api.fork(root, append_messages=[TASK, REPLY])
    whole = api.fork(root, messages=[SYSTEM, TASK, REPLY])
    assert whole["pool_id"] == by_messages["pool_id"], "the same tokens"
    chat = {
        "messages": [SYSTEM, TASK, REPLY, {"role": "user", "content": "And the Danube?"}],
        "max_tokens": 4,
        "pool_id": by_messages["pool_id"],
    }
    answer = api.post("/v1/chat/completions", chat)
    assert answer["opencoti"]["cache_n"] == by_messages["prefix_len"]
    by_text = api.fork(root, append_prompt="Some text.")
    appended = api.post("/tokenize", {"content": "Some text.", "add_special": False})["tokens"]
    assert by_text["prefix_len"] == root["prefix_len"] + len(appended)
    by_tokens = api.fork(root, append_tokens=appended)
    assert by_tokens["pool_id"] == by_text["pool_id"]


def test_a_fork_that_does_not_wait(api: Api, tokens: list[int]) -> None:
    root = api.create_pool(tokens=tokens[:100])
    path = f"/polykv/pools/{root['pool_id']}/fork"
    reply = api.send("POST", path, {"tokens": tokens[:400], "wait": False})
    assert reply.status == 202
    pool_id = reply.json["pool_id"]
    eventually(lambda: api.pool(pool_id)["residency"] == "resident", "it is computed")
    answer = api.complete(tokens, 1, pool_id=pool_id)
    assert answer["opencoti"]["cache_n"] == 399


def test_wrong_forks_say_why_and_change_nothing(api: Api, tokens: list[int]) -> None:
    root = api.create_pool(tokens=tokens[:100], name="root")
    state = api.state()
    path = "/polykv/pools/root/fork"
    other = [*tokens[:60], *tokens[200:260]]
    error = assert_problem(
        api.send("POST", path, {"tokens": other, "branch_pos": 80}), 409, "prefix_mismatch"
    )
    assert error["mismatch_pos"] == 60
    assert_problem(api.send("POST", path, {"tokens": tokens[:120], "branch_pos": 101}), 400)
    assert_problem(api.send("POST", "/polykv/pools/nobody/fork", {"tokens": [1]}), 404)
    assert_problem(
        api.send("POST", path, {"from_session": "nobody"}), 404, "session_not_found"
    )
    assert_problem(api.send("POST", path, {"tokens": [1], "append_tokens": [1]}), 400)
    assert_problem(api.send("POST", path, {}), 400)
    assert_problem(api.send("POST", path, {"tokens": [1], "parent": 3}), 400)
    assert api.state() == state


def test_an_evicted_tree_comes_back(api: Api, tokens: list[int]) -> None:
    root = api.create_pool(tokens=tokens[:150])
    child = api.fork(root, tokens=tokens[:200])
    prompt = tokens[:200] + api.tokens(counting(40))
    expected = api.complete(prompt, 8, pool_id=child["pool_id"])["content"]
    flushed = api.post(f"/polykv/pools/{root['pool_id']}/flush", {})
    assert flushed["n_evicted"] == 2
    assert {p["residency"] for p in api.get("/polykv/pools")["pools"]} == {"evicted"}
    answer = api.complete(prompt, 8, pool_id=child["pool_id"])
    assert answer["content"] == expected
    assert answer["opencoti"]["cache_n"] == 200
    assert {p["residency"] for p in api.get("/polykv/pools")["pools"]} == {"resident"}


def test_a_slots_tokens_are_shared_without_a_pool(api: Api, tokens: list[int]) -> None:
    """The legacy way: a slot's number instead of a pool."""
    api.complete(tokens[:200], 4, id_slot=1)
    prompt = tokens[:180] + api.tokens(counting(60))
    body = greedy(prompt, 8, shared_pool_slot=1, shared_prefix_n_tokens=150)
    answer = api.post("/completion", body)
    assert answer["opencoti"]["cache_n"] == 150
    alone = api.complete(prompt, 8, cache_prompt=False)
    assert answer["content"] == alone["content"]
    assert_problem(api.send("POST", "/completion", {**body, "shared_pool_slot": 9}), 400)
