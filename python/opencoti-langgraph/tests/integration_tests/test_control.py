"""The control client against a real server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from opencoti_langgraph.control import (
    ConflictError,
    ControlClient,
    PoolNotFoundError,
    PrefixMismatchError,
    SessionNotFoundError,
)

SYSTEM = [{"role": "system", "content": "You are a geography teacher. Answer in one sentence."}]
TASK = [
    {"role": "user", "content": "Today it is about Europe."},
    {"role": "assistant", "content": "Fine: ask me about Europe."},
]


def test_the_life_of_a_pool(client: ControlClient) -> None:
    root = client.create_pool(messages=SYSTEM, name="geography")
    again = client.create_pool(messages=SYSTEM)
    assert root["created"] and not again["created"] and again["pool_id"] == root["pool_id"]
    child = client.fork_pool("geography", append_messages=TASK, name="europe")
    assert child["shared_len"] == root["prefix_len"] < child["prefix_len"]

    tree = client.pools()
    assert [pool["name"] for pool in tree["pools"]] == ["geography", "europe"]
    subtree = client.pool("geography")
    assert subtree["refs"] == 2 and subtree["children"] == [child["pool_id"]]
    assert client.pin_pool("europe", pin_key="test")["pinned"]
    assert not client.unpin_pool("europe", pin_key="test")["pinned"]
    assert client.evict_pool("europe")["n_evicted"] == 1
    assert client.flush_pool("geography")["n_evicted"] == 1

    assert client.release_pool("geography", force=True)["refs"] == 1
    with pytest.raises(ConflictError):
        client.release_pool("geography", force=True)
    assert client.release_pool("geography", subtree=True, force=True)["released"]
    with pytest.raises(PoolNotFoundError):
        client.pool("geography")


def test_a_fork_says_where_it_parts_from_its_parent(client: ControlClient) -> None:
    tokens = client.tokenize("one two three four five", add_special=True)
    root = client.create_pool(tokens=tokens)
    other = [*tokens[:2], tokens[0], *tokens[3:], tokens[0]]
    with pytest.raises(PrefixMismatchError) as caught:
        client.fork_pool(root["pool_id"], tokens=other, branch_pos=len(tokens))
    assert caught.value.mismatch_pos == 2


def test_a_policy_and_what_it_admits(client: ControlClient) -> None:
    client.create_pool(messages=SYSTEM, name="shared")
    assert "mode" not in client.admission("shared")
    policy = client.set_admission("shared", target_tps_per_session=5, mode="enforced")
    assert client.admission("shared") == policy
    capacity = client.capacity("shared")
    assert capacity["can_admit"] and capacity["guaranteed"]
    assert client.wait_for_room("shared", expected_tokens=100)["can_admit"]
    assert not client.capacity("shared", expected_tokens=10**6)["can_admit"]


def test_sessions(client: ControlClient) -> None:
    assert client.sessions() == []
    with pytest.raises(SessionNotFoundError):
        client.session("nobody")
    assert client.end_session("nobody") is False


def test_counted_tokens_are_those_of_the_prompt(client: ControlClient) -> None:
    pool = client.create_pool(messages=SYSTEM)
    assert client.count_tokens([*SYSTEM, *TASK]) > pool["prefix_len"]


def test_compaction_changes_the_pool_and_releases_the_old_one(client: ControlClient) -> None:
    root = client.create_pool(messages=SYSTEM)
    work = client.fork_pool(root["pool_id"], append_messages=TASK)
    summary = [{"role": "user", "content": "So far: Europe."}]
    done = client.compact_by_refork(work["pool_id"], compacted_messages=summary, force=True)
    assert done["pool"]["parent"] == root["pool_id"] and done["released"] == work["pool_id"]
    left = [pool["pool_id"] for pool in client.pools()["pools"]]
    assert left == [root["pool_id"], done["pool"]["pool_id"]]


def test_events_are_told_once_and_behind_a_break(client: ControlClient) -> None:
    stream = client.watch_events()
    begin = next(stream)
    assert begin["type"] == "reset"
    assert begin["data"]["snapshot"]["pools"] == []
    client.create_pool(messages=SYSTEM, name="geography")
    created = next(stream)
    assert (created["type"], created["data"]["name"]) == ("pool_created", "geography")
    sealed = next(client.watch_events(last_event_id=created["id"]))
    assert sealed["type"] == "pool_sealed"
    since = client.events(begin["id"])
    assert [event["kind"] for event in since["events"]] == ["pool_created", "pool_sealed"]


def test_many_ask_at_once_on_one_loop(client: ControlClient) -> None:
    async def first() -> int:
        async with aclosing(client.awatch_tps()) as reports:
            return (await anext(reports))["n_active"]

    async def both() -> tuple[list[int], int]:
        trees = await asyncio.gather(*(client.apools() for _ in range(20)))
        return [tree["boot_id"] for tree in trees], await first()

    boots, n_active = asyncio.run(both())
    assert len(set(boots)) == 1 and n_active == 0
