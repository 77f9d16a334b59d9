"""Pools themselves: creating, naming, listing, pinning, releasing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from harness.server import ServerProcess
from support import Api, assert_problem, counting, eventually, eventually_equal, greedy

SYSTEM = {"role": "system", "content": "You answer questions about rivers. " * 8}
USER = {"role": "user", "content": "How long is the Nile?"}
ASSISTANT = {"role": "assistant", "content": "About 6,650 km."}
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture
def tokens(api: Api, document: str) -> list[int]:
    """The first 150 tokens of a real text."""
    return api.tokens(document)[:150]


def test_a_pool_of_tokens_takes_exactly_its_tokens_in_cells(api: Api, tokens: list[int]) -> None:
    before = api.get("/polykv/pools")
    pool = api.create_pool(tokens=tokens)
    after = api.get("/polykv/pools")
    assert pool["parent"] == -1
    assert pool["branch_pos"] == 0
    assert pool["prefix_len"] == pool["n_prefilled"] == 150
    assert pool["created"] is True
    assert pool["boot_id"] == after["boot_id"]
    assert pool["own_kv_bytes"] == 150 * after["bytes_per_cell"]
    assert pool["prefix_hash"]
    assert after["kv_cells_used"] - before["kv_cells_used"] == 150
    assert after["seq_ids_used"] - before["seq_ids_used"] == 1


def test_a_pool_of_a_prompt_has_the_prompts_tokens(api: Api) -> None:
    prompt = "<|im_start|>system\nFacts about rivers: the Nile is long.<|im_end|>"
    pool = api.create_pool(prompt=prompt)
    expected = api.post("/tokenize", {"content": prompt, "add_special": True})["tokens"]
    assert pool["prefix_len"] == len(expected)
    reply = api.complete(prompt + " What is the Nile?", n_predict=1, pool_id=pool["pool_id"])
    assert reply["opencoti"]["cache_n"] == len(expected)


@pytest.mark.parametrize(
    ("messages", "turns"),
    [
        ([SYSTEM], [[USER], [{"role": "user", "content": "Zambezi?"}]]),
        ([SYSTEM, USER, ASSISTANT], [[{"role": "user", "content": "And the Rhine?"}]]),
        ([USER], [[ASSISTANT, {"role": "user", "content": "Sure?"}]]),
    ],
    ids=["system", "system, user, assistant", "user"],
)
def test_a_pool_of_messages_is_a_prefix_of_every_chat_that_begins_with_them(
    api: Api, messages: list[Any], turns: list[list[Any]]
) -> None:
    pool = api.create_pool(messages=messages)
    at_least = len(api.tokens("".join(message["content"] for message in messages))) - 1
    assert pool["prefix_len"] >= at_least
    assert "template_break" not in pool
    for rest in turns:
        body = {"messages": messages + rest, "max_tokens": 1, "pool_id": pool["pool_id"]}
        reply = api.post("/v1/chat/completions", body)
        assert reply["opencoti"]["cache_n"] == pool["prefix_len"]


def test_a_pool_of_messages_with_tools_serves_chats_with_these_tools(api: Api) -> None:
    chat = {"messages": [SYSTEM], "tools": [WEATHER_TOOL]}
    pool = api.create_pool(**chat)
    chat["messages"] = [SYSTEM, USER]
    body = {**chat, "max_tokens": 1, "pool_id": pool["pool_id"]}
    reply = api.post("/v1/chat/completions", body)
    assert reply["opencoti"]["cache_n"] == pool["prefix_len"]


def test_the_same_tokens_again_give_the_same_pool(api: Api, tokens: list[int]) -> None:
    first = api.create_pool(tokens=tokens)
    cells = api.cells_used()
    second = api.create_pool(tokens=tokens)
    assert second["pool_id"] == first["pool_id"]
    assert (first["created"], second["created"]) == (True, False)
    assert second["prefix_hash"] == first["prefix_hash"]
    assert api.cells_used() == cells
    assert api.pool(first["pool_id"])["refs"] == 2


def test_unique_gives_a_pool_of_its_own(api: Api, tokens: list[int]) -> None:
    first = api.create_pool(tokens=tokens)
    second = api.create_pool(tokens=tokens, unique=True)
    assert second["created"] is True
    assert second["pool_id"] != first["pool_id"]


def test_creates_at_the_same_time_prefill_once(api: Api, tokens: list[int]) -> None:
    before = api.cells_used()
    with ThreadPoolExecutor(4) as executor:
        pools = list(executor.map(lambda _: api.create_pool(tokens=tokens), range(4)))
    assert len({pool["pool_id"] for pool in pools}) == 1
    assert sorted(pool["created"] for pool in pools) == [False, False, False, True]
    assert api.cells_used() - before == 150
    entry = api.pool(pools[0]["pool_id"])
    assert (entry["refs"], entry["n_prefilled"]) == (4, 150)


def test_a_name_belongs_to_one_prefix(api: Api, tokens: list[int]) -> None:
    pool = api.create_pool(tokens=tokens, name="rivers")
    same = api.create_pool(tokens=tokens, name="rivers")
    assert (same["pool_id"], same["created"]) == (pool["pool_id"], False)
    before = api.state()
    other = api.send("POST", "/polykv/pools", {"tokens": tokens[:50], "name": "rivers"})
    assert_problem(other, 409)
    assert api.state() == before


def test_the_list_shows_every_pool_with_its_figures(api: Api, tokens: list[int]) -> None:
    named = api.create_pool(tokens=tokens, name="named", pin=True)["pool_id"]
    plain = api.create_pool(tokens=tokens[:40])["pool_id"]
    tree = api.get("/polykv/pools")
    assert [pool["pool_id"] for pool in tree["pools"]] == [named, plain]
    assert tree["kv_cells_used"] <= tree["kv_cells_total"] == 8192
    assert tree["seq_ids_used"] <= tree["seq_ids_max"] == 4 + 16 + 8 + 2
    first, second = tree["pools"]
    assert (first["name"], second["name"]) == ("named", None)
    assert (first["pinned"], second["pinned"]) == (True, False)
    for pool, length in ((first, 150), (second, 40)):
        assert (pool["parent"], pool["branch_pos"], pool["shared_len"]) == (-1, 0, 0)
        assert pool["prefix_len"] == pool["own_len"] == length
        assert pool["own_kv_bytes"] == length * tree["bytes_per_cell"]
        assert pool["residency"] == "resident"
        assert pool["refs"] == 1
        assert pool["children"] == pool["sessions"] == []


def test_one_pool_is_shown_by_number_and_by_name(api: Api, tokens: list[int]) -> None:
    pool_id = api.create_pool(tokens=tokens, name="brook")["pool_id"]
    api.create_pool(tokens=tokens[:20])
    for key in (pool_id, "brook"):
        shown = api.get(f"/polykv/pools/{key}")
        assert [pool["pool_id"] for pool in shown["pools"]] == [pool_id]


def test_an_unknown_pool_is_not_found(api: Api, tokens: list[int]) -> None:
    api.create_pool(tokens=tokens)
    headers = {"Content-Type": "application/json"}
    for method, path in (
        ("GET", "/polykv/pools/999999999"),
        ("GET", "/polykv/pools/nobody"),
        ("POST", "/polykv/pools/999999999/pin"),
        ("POST", "/polykv/pools/999999999/unpin"),
        ("DELETE", "/polykv/pools/999999999"),
    ):
        body = {} if method == "POST" else None
        assert_problem(api.send(method, path, body, headers), 404, "pool_not_found")


def test_pin_and_unpin_may_be_repeated(api: Api, tokens: list[int]) -> None:
    pool_id = api.create_pool(tokens=tokens)["pool_id"]
    for change, pinned in ((api.pin, True), (api.pin, True), (api.unpin, False), (api.unpin, False)):
        change(pool_id)
        entry = api.pool(pool_id)
        assert entry["pinned"] is pinned
        assert entry["orphaned_pin"] is pinned  # no session uses it


def test_delete_drops_one_reference(api: Api, tokens: list[int]) -> None:
    pool_id = api.create_pool(tokens=tokens)["pool_id"]
    api.create_pool(tokens=tokens)
    api.delete(f"/polykv/pools/{pool_id}")
    assert api.pool(pool_id)["refs"] == 1
    api.delete(f"/polykv/pools/{pool_id}")
    assert api.pool(pool_id)["refs"] == 0  # kept for the grace time
    assert api.complete(tokens + [1], n_predict=1, pool_id=pool_id)["opencoti"]["cache_n"] == 150


def test_a_forced_delete_frees_the_cells_at_once(api: Api, tokens: list[int]) -> None:
    before = api.cells_used()
    pool_id = api.create_pool(tokens=tokens)["pool_id"]
    api.delete(f"/polykv/pools/{pool_id}?force=1")
    assert api.pool(pool_id) is None
    assert api.cells_used() == before
    assert_problem(api.send("GET", f"/polykv/pools/{pool_id}"), 404, "pool_not_found")


def test_a_pool_without_references_goes_after_its_grace(
    start_server: Callable[..., ServerProcess], document: str
) -> None:
    flags = ("-c", "1024", "-np", "2", "--kv-unified", "--polykv-grace-ms", "200")
    api = Api(start_server(*flags).base_url)
    before = api.cells_used()
    pool_id = api.create_pool(tokens=api.tokens(document)[:60])["pool_id"]
    api.delete(f"/polykv/pools/{pool_id}")
    eventually(lambda: api.pool(pool_id) is None, "the pool is gone")
    assert api.cells_used() == before


def test_pool_ids_are_never_used_again(api: Api, tokens: list[int]) -> None:
    first = api.create_pool(tokens=tokens)["pool_id"]
    api.release(first)
    assert api.create_pool(tokens=tokens)["pool_id"] > first


def test_without_wait_the_answer_comes_before_the_prefill(api: Api, document: str) -> None:
    tokens = api.tokens(document)[:1500]
    reply = api.send("POST", "/polykv/pools", {"tokens": tokens, "wait": False})
    assert reply.status == 202
    pool_id = reply.json["pool_id"]
    assert api.pool(pool_id)["residency"] == "materializing"
    eventually(lambda: 0 < api.pool(pool_id)["n_prefilled"] < 1500, "progress is visible")
    eventually(lambda: api.pool(pool_id)["residency"] == "resident", "the pool is resident")
    assert api.pool(pool_id)["n_prefilled"] == 1500


def test_a_create_that_nobody_waits_for_any_more_leaves_nothing(api: Api, document: str) -> None:
    tokens = api.tokens(document)[:3000]
    before = api.get("/polykv/pools")
    with api.open("/polykv/pools", {"tokens": tokens}):
        eventually(lambda: api.cells_used() > before["kv_cells_used"], "the prefill has begun")
    eventually_equal(api.cells_used, before["kv_cells_used"], "cells after the client has gone")
    assert api.pool_ids() == []
    assert api.get("/polykv/pools")["seq_ids_used"] == before["seq_ids_used"]


def test_a_session_goes_on_when_its_pool_is_released(api: Api, tokens: list[int]) -> None:
    before = api.cells_used()
    prompt = tokens + api.tokens(counting(100))
    alone = api.complete(prompt, n_predict=60, pool_id=api.create_pool(tokens=tokens)["pool_id"])
    pool_id = api.create_pool(tokens=tokens)["pool_id"]
    with api.open("/completion", greedy(prompt, 60, pool_id=pool_id, stream=True)) as exchange:
        events = exchange.events()
        text = next(events).data["content"]
        api.release(pool_id)
        text += "".join(event.data["content"] for event in events)
    assert text == alone["content"]
    eventually_equal(api.cells_used, before, "cells after the session has ended")


def test_unrelated_traffic_leaves_a_pool_intact(api: Api, tokens: list[int]) -> None:
    pool_id = api.create_pool(tokens=tokens)["pool_id"]
    for number in range(6):
        api.complete(counting(100 * number), n_predict=4)
    reply = api.complete(tokens + [1], n_predict=1, pool_id=pool_id)
    assert reply["opencoti"]["cache_n"] == 150


def test_a_pool_that_can_never_fit_is_refused_and_one_that_cannot_now_asks_to_retry(
    start_server: Callable[..., ServerProcess], document: str
) -> None:
    api = Api(start_server("-c", "1024", "-np", "2", "--kv-unified").base_url)
    tokens = api.tokens(document)
    too_long = api.send("POST", "/polykv/pools", {"tokens": tokens[:1500]})
    error = assert_problem(too_long, 400, "exceed_context_size_error")
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (1500, 1024)
    api.create_pool(tokens=tokens[:700], pin=True)
    before = api.state()
    no_room = api.send("POST", "/polykv/pools", {"tokens": tokens[100:800]})
    assert_problem(no_room, 503, "no_free_cells")
    assert int(no_room.headers["retry-after"]) >= 1
    assert api.state() == before


def test_more_pools_than_configured_are_refused(
    start_server: Callable[..., ServerProcess], document: str
) -> None:
    flags = ("-c", "1024", "-np", "1", "--kv-unified", "--polykv-max-pools", "2")
    api = Api(start_server(*flags).base_url)
    tokens = api.tokens(document)
    for start in range(2):
        api.create_pool(tokens=tokens[start : start + 20], pin=True)
    refused = api.send("POST", "/polykv/pools", {"tokens": tokens[2:22]})
    assert_problem(refused, 503, "no_free_sequence")
    assert int(refused.headers["retry-after"]) >= 1
    assert len(api.pool_ids()) == 2


@pytest.mark.parametrize(
    ("architecture", "flags", "n_pools", "n_sessions", "sharing"),
    [
        ("gemma3", (), 4, 4, "window"),
        ("gemma3", ("--swa-full",), 16, 8, "any_position"),
        ("jamba", (), 4, 4, "at_tip"),
        ("mamba", ("--polykv-max-pools", "2", "--polykv-max-sessions", "3"), 2, 3, "at_tip"),
        ("jamba", ("-np", "4", "--no-kv-unified"), 0, 0, "at_tip"),
        ("gemma3", ("-np", "4", "--no-kv-unified", "--polykv-max-pools", "2"), 2, 4, "window"),
        ("llama", ("-np", "4", "--no-kv-unified", "--polykv-max-pools", "1"), 1, 4, "any_position"),
    ],
)
def test_pools_on_every_kind_of_model_and_layout(
    start_server: Callable[..., ServerProcess],
    tiny_models: Path,
    architecture: str,
    flags: tuple[str, ...],
    n_pools: int,
    n_sessions: int,
    sharing: str,
) -> None:
    model = str(tiny_models / f"tiny-{architecture}.gguf")
    api = Api(start_server("-m", model, "-c", "1024", *flags).base_url)
    props = api.get("/props")["opencoti"]["polykv"]
    assert (props["max_pools"], props["max_sessions"]) == (n_pools, n_sessions)
    assert props["sharing"] == sharing
    assert "sharing_reason" not in props
    tokens = list(range(300, 360))
    if n_pools == 0:
        assert props["reserve_bytes"] == 0
        reply = api.send("POST", "/polykv/pools", {"tokens": tokens})
        problem = assert_problem(reply, 501, "not_supported_error")
        assert "--no-kv-unified" in problem["message"]
        return

    def ask(prompt: list[int], **fields: Any) -> Any:
        return api.complete(prompt, n_predict=4, temperature=0, ignore_eos=True, **fields)

    whole, part = [*tokens, 400, 401, 402], [*tokens[:40], 400, 401, 402]
    alone = [ask(prompt, cache_prompt=False)["content"] for prompt in (whole, part)]
    api.create_pool(tokens=tokens, name="shared")
    replies = [ask(prompt, pool_id="shared") for prompt in (whole, part)]
    assert [reply["content"] for reply in replies] == alone
    assert (props["reserve_bytes"] == 0) == (flags == ("--swa-full",))
    assert [reply["opencoti"]["cache_n"] for reply in replies] == [
        60,
        0 if sharing == "at_tip" else 40,
    ]
    reasons = [reply["opencoti"].get("miss_reason") for reply in replies]
    assert reasons == [None, "recurrent" if sharing == "at_tip" else None]
