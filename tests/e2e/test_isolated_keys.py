"""With --polykv-isolate-keys nothing of one API key reaches another, on any route."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from harness.server import ServerProcess
from servers import Servers
from support import Api, assert_problem, eventually, greedy, read_tokens

CHAT = "/v1/chat/completions"
ADMIN_KEY = "operators-key"
FLAGS = ("-c", "4096", "-np", "4", "--kv-unified", "--metrics", "--slots", "--props")
KEYS = ("--api-key", "first-key,second-key", "--polykv-isolate-keys", "--polykv-admin-key",
        ADMIN_KEY)

_numbers = itertools.count(1)


class Tenants(NamedTuple):
    first: Api
    second: Api
    admin: Api


@pytest.fixture(scope="module")
def server(
    servers: Servers,
    server_binary: Path,
    llama_source: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> ServerProcess:
    """With a chat template that opens the thinking by itself, for the route that ends it."""
    template = llama_source / "models/templates/Qwen-QwQ-32B.jinja"
    folder = tmp_path_factory.mktemp("slots")
    return servers.start(
        server_binary,
        (*FLAGS, *KEYS, "--chat-template-file", str(template), "--slot-save-path", str(folder)),
    )


@pytest.fixture
def tenants(server: ServerProcess) -> Iterator[Tenants]:
    keys = ("first-key", "second-key", ADMIN_KEY)
    tenants = Tenants(*(Api(server.base_url, key) for key in keys))
    yield tenants
    assert server.process.poll() is None, "the server has died"
    for api in tenants[:2]:
        api.clear()
    eventually(lambda: not any(s["is_processing"] for s in tenants.admin.get("/slots")), "idle")


@pytest.fixture
def story() -> str:
    """A prompt that no other test has."""
    return f"Story {next(_numbers)}. The lighthouse keeper counted the waves, and every night the"


def cached(api: Api, prompt: str, **fields: Any) -> int:
    return api.complete(prompt, 4, **fields)["timings"]["cache_n"]


def not_found(api: Api, method: str, path: str, body: Any = None) -> None:
    headers = {"Content-Type": "application/json"}
    reply = api.send(method, path, body, headers)
    assert_problem(reply, 404)


def generations(text: str) -> list[tuple[str, dict[str, Any]]]:
    messages = [{"role": "user", "content": text}]
    limits = {"max_tokens": 2, "temperature": 0}
    return [
        ("/completion", greedy(text, 2)),
        ("/v1/completions", {"prompt": text, **limits}),
        (CHAT, {"messages": messages, **limits}),
        ("/v1/messages", {"messages": messages, **limits}),
        ("/v1/responses", {"input": text, "max_output_tokens": 2, "temperature": 0}),
    ]


def cached_tokens(body: Any) -> int:
    """As each route says it."""
    if "timings" in body:
        return body["timings"]["cache_n"]
    usage = body["usage"]
    if "cache_read_input_tokens" in usage:
        return usage["cache_read_input_tokens"]
    return usage["input_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("route", range(5))
def test_equal_prompts_are_computed_for_each_key(tenants: Tenants, story: str, route: int) -> None:
    path, body = generations(story)[route]
    for api in tenants[:2]:
        assert cached_tokens(api.post(path, body)) == 0
        assert cached_tokens(api.post(path, body)) > 0


def test_the_prompt_cache_keeps_what_it_has_for_its_key(tenants: Tenants, story: str) -> None:
    first, second, _ = tenants
    cached(first, story, id_slot=0)
    cached(second, "Something else entirely, which takes the slot.", id_slot=0)
    assert cached(second, story, id_slot=0) == 0
    assert cached(first, story, id_slot=0) > 0


def test_equal_pools_are_two(tenants: Tenants, story: str) -> None:
    first, second, admin = tenants
    pools = [api.create_pool(prompt=story, name="docs") for api in (first, second)]
    assert pools[0]["pool_id"] != pools[1]["pool_id"]
    for api, pool in zip(tenants, pools):
        assert pool["created"] and pool["n_prefilled"] == pool["prefix_len"]
        assert api.pool_ids() == [pool["pool_id"]]
        answer = api.complete(story + " sea", 4, pool_id="docs")
        assert answer["opencoti"]["pool_id"] == pool["pool_id"]
        assert answer["timings"]["cache_n"] == pool["prefix_len"]
        assert not api.create_pool(prompt=story, name="docs")["created"]
    assert admin.pool_ids() == [pool["pool_id"] for pool in pools]


def test_another_keys_pool_is_not_there(tenants: Tenants, story: str) -> None:
    first, second, _ = tenants
    pool = first.create_pool(prompt=story, name="docs")
    before = first.state()
    for reference in (pool["pool_id"], "docs"):
        path = f"/polykv/pools/{reference}"
        not_found(second, "GET", path)
        not_found(second, "POST", path + "/fork", {"append_prompt": " and"})
        not_found(second, "POST", path + "/fork", {"prompt": story + " and"})
        for action in ("pin", "unpin", "evict", "flush"):
            not_found(second, "POST", f"{path}/{action}", {})
        not_found(second, "POST", path + "/admission", {"target_tps_per_session": 5})
        not_found(second, "GET", path + "/admission")
        not_found(second, "GET", path + "/capacity")
        for options in ("", "?force=1", "?subtree=1&force=1"):
            not_found(second, "DELETE", path + options)
        answer = second.complete(story + " sea", 4, pool_id=str(reference))
        assert answer["opencoti"]["miss_reason"] == "no_pool"
        assert answer["timings"]["cache_n"] == 0
        strict = greedy(story, 2, pool_id=str(reference), on_pool_miss="error")
        not_found(second, "POST", "/completion", strict)
        headers = {"X-Polykv-Pool": str(reference)}
        assert second.send("POST", "/completion", greedy(story, 2), headers).json["timings"][
            "cache_n"] == 0
    assert second.pool_ids() == []
    assert first.state() == before


def test_equal_sessions_are_two(tenants: Tenants, story: str) -> None:
    first, second, admin = tenants
    assert cached(first, story, session_id="anna") == 0
    not_found(second, "GET", "/polykv/sessions?session_id=anna")
    not_found(second, "DELETE", "/polykv/sessions?session_id=anna")
    not_found(second, "POST", "/polykv/pools", {"from_session": "anna"})
    parent = second.create_pool(tokens=[1, 2])
    not_found(second, "POST", f"/polykv/pools/{parent['pool_id']}/fork", {"from_session": "anna"})
    assert second.sessions() == {}

    assert cached(second, story, session_id="anna") == 0
    assert cached(first, story, session_id="anna") > 0
    assert second.get("/polykv/sessions")["n_sessions"] == 1
    assert admin.get("/polykv/sessions?session_id=anna")["n_sessions"] == 2
    shown = [len(api.get("/polykv/tps?once=1")["sessions"]) for api in tenants]
    assert shown == [1, 1, 2]
    assert second.delete("/polykv/sessions?all=1") == {"ended": 1}
    assert list(first.sessions()) == ["anna"]
    assert cached(first, story, session_id="anna") > 0


def test_nobody_hears_of_anothers_events(tenants: Tenants) -> None:
    start = tenants.admin.get("/polykv/events?once=1")["last_event_id"]
    pools = [api.create_pool(tokens=[1, 2]) for api in tenants[:2]]
    for api, own in zip(tenants, ({0}, {1}, {0, 1}), strict=True):
        events = api.get(f"/polykv/events?once=1&last_event_id={start}")["events"]
        assert {event["pool_id"] for event in events} == {pools[i]["pool_id"] for i in own}
        with api.watch("/polykv/events") as exchange:
            reset = next(exchange.events()).data
        shown = {pool["pool_id"] for pool in reset["snapshot"]["pools"]}
        assert shown == {pools[i]["pool_id"] for i in own}


def test_a_slot_shows_no_more_than_that_it_works(tenants: Tenants, story: str) -> None:
    first, second, admin = tenants
    unused = {"is_processing": False, "pool_id": None, "session_id": None, "tps_ewma": None,
              "ctx_used": 0}
    body = greedy(story, 800, ignore_eos=True, stream=True, id_slot=3, session_id="anna")
    with first.open("/completion", body) as exchange:
        read_tokens(exchange, 2)
        own, foreign, all_seen = (api.get("/slots")[3] for api in tenants)
    assert own["session_id"] == "anna" and own["n_prompt_tokens"] > 0 and own["params"]
    assert all_seen["session_id"] == "anna"
    shown = {"id", "n_ctx", "speculative", "ctx_total", "ctx_headroom_tokens", *unused}
    assert set(foreign) == shown
    assert foreign.items() >= {**unused, "is_processing": True}.items()
    eventually(lambda: not admin.get("/slots")[3]["is_processing"], "the slot is free")
    assert "id_task" in first.get("/slots")[3]
    assert set(second.get("/slots")[3]) == shown
    assert second.get("/slots")[3].items() >= unused.items()


def test_another_keys_slot_shares_nothing(tenants: Tenants, story: str) -> None:
    first, second, _ = tenants
    cached(first, story, id_slot=2)
    answer = second.complete(story + " sea", 4, shared_pool_slot=2)
    assert answer["timings"]["cache_n"] == 0
    assert answer["opencoti"]["miss_reason"] == "evicted"
    cached(first, story, id_slot=2)  # what idle slots hold leaves the cache when others start
    answer = first.complete(story + " sea", 4, shared_pool_slot=2)
    assert answer["timings"]["cache_n"] > 0


def test_slots_and_their_files_are_their_keys(tenants: Tenants, story: str) -> None:
    first, second, _ = tenants
    cached(first, story, id_slot=1)
    for action in ("save", "erase"):
        not_found(second, "POST", f"/slots/1?action={action}", {"filename": "saved"})
    assert first.post("/slots/1?action=save", {"filename": "saved"})["n_saved"] > 0
    assert_problem(second.send("POST", "/slots/1?action=restore", {"filename": "saved"}), 400)
    assert first.post("/slots/0?action=restore", {"filename": "saved"})["n_restored"] > 0
    assert cached(second, story, id_slot=0) == 0
    assert first.post("/slots/0?action=restore", {"filename": "saved"})["n_restored"] > 0
    assert cached(first, story, id_slot=0) > 0


def test_equal_conversations_are_two(tenants: Tenants, story: str) -> None:
    first, second, admin = tenants
    headers = {"X-Conversation-Id": story}
    path = "/v1/stream?conv_id=" + quote(story, safe="")
    lookup = {"conversation_ids": [story]}
    with first.open("/completion", greedy(story, 4, stream=True), headers) as exchange:
        sent = b"".join(exchange.parts())
    for api in (second, admin):
        not_found(api, "GET", path)
        assert api.post("/v1/streams/lookup", lookup) == []
        assert api.send("DELETE", path).status == 204
    assert first.send("GET", path).body == sent
    with second.open("/completion", greedy(story, 2, stream=True), headers) as exchange:
        other = b"".join(exchange.parts())
    assert first.send("GET", path).body == sent
    assert second.send("GET", path).body == other
    assert len(first.post("/v1/streams/lookup", lookup)) == 1


def test_thinking_is_ended_with_its_key(tenants: Tenants, story: str) -> None:
    first, second, admin = tenants
    body = {"messages": [{"role": "user", "content": story}], "max_tokens": 400, "temperature": 0,
            "ignore_eos": True, "stream": True, "reasoning_control": True}
    replies = []
    with first.open(CHAT, body) as exchange:
        for event in exchange.events():
            if event.data["choices"][0]["delta"].get("reasoning_content"):
                end = {"id": event.data["id"], "action": "reasoning_end"}
                replies = [api.post(f"{CHAT}/control", end) for api in (second, admin, first)]
                break
    assert [reply["success"] for reply in replies] == [False, False, True]


def test_what_concerns_all_needs_the_admin_key(tenants: Tenants) -> None:
    for method, path, body in (
        ("GET", "/metrics", None),
        ("POST", "/lora-adapters", []),
        ("POST", "/props", {}),
    ):
        for api in tenants[:2]:
            assert_problem(api.send(method, path, body), 401, "authentication_error")
        assert tenants.admin.send(method, path, body).status == 200
    assert tenants.first.get("/props")["opencoti"]["polykv"]["trust"] == "per_key"


def test_the_admin_key_changes_nothing_of_a_tenants(tenants: Tenants, story: str) -> None:
    first, _, admin = tenants
    pool = first.create_pool(prompt=story, name="docs")
    cached(first, story, session_id="anna")
    assert admin.get("/polykv/pools/docs")["pool_id"] == pool["pool_id"]
    not_found(admin, "POST", "/polykv/pools/docs/pin", {})
    not_found(admin, "DELETE", "/polykv/pools/docs")
    assert admin.delete("/polykv/sessions?all=1") == {"ended": 0}
    assert cached(admin, story, pool_id="docs") == 0
    assert list(first.sessions()) == ["anna"]


def test_no_key_shows_in_the_log(server: ServerProcess, tenants: Tenants) -> None:
    log = server.log_path.read_text(errors="replace")
    assert not any(key in log for key in ("first-key", "second-key", ADMIN_KEY))
