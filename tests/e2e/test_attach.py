"""Requests that start from a pool: on every route, in every spelling, whole and partial matches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support import Api, assert_problem, greedy

SYSTEM = {"role": "system", "content": "You know everything about trees. " * 10}
ROUTES = (
    "/completion",
    "/completions",
    "/v1/completions",
    "/chat/completions",
    "/v1/chat/completions",
)
BLOCK_FIELDS = {"pool_id", "session_id", "cache_n", "session_tps", "ctx_used", "ctx_headroom_tokens"}


@pytest.fixture
def tokens(api: Api, document: str) -> list[int]:
    """150 tokens of a real text and 50 that go on from there."""
    return api.tokens(document)[:200]


def is_chat(path: str) -> bool:
    return "chat" in path


def make_pool(api: Api, path: str, tokens: list[int]) -> Any:
    """A pool named "shared" for `question(path, …)`."""
    source = {"messages": [SYSTEM]} if is_chat(path) else {"tokens": tokens[:150]}
    return api.create_pool(name="shared", **source)


def question(path: str, tokens: list[int], **fields: Any) -> dict[str, Any]:
    """A request of that route whose prompt begins with the pool of `make_pool`."""
    body = {"temperature": 0, "max_tokens": 5, "ignore_eos": True, **fields}
    if is_chat(path):
        return {"messages": [SYSTEM, {"role": "user", "content": "What is an oak?"}], **body}
    return {"prompt": tokens, **body}


def assert_block(block: Mapping[str, Any], pool: Mapping[str, Any]) -> None:
    """The block of a finished request that found the whole pool."""
    assert BLOCK_FIELDS <= set(block)
    assert block["pool_id"] == pool["pool_id"]
    assert block["cache_n"] == pool["prefix_len"]
    assert isinstance(block["session_id"], str) and block["session_id"]
    assert block["ctx_used"] > pool["prefix_len"]
    assert block["ctx_used"] + block["ctx_headroom_tokens"] == 8192
    assert block.get("miss_reason") is None
    assert block.get("prefix_break_at") is None


@pytest.mark.parametrize("spelling", ["number", "decimal string", "name"])
@pytest.mark.parametrize("path", ROUTES)
def test_a_whole_answer_reports_the_pool_everywhere(
    api: Api, tokens: list[int], path: str, spelling: str
) -> None:
    pool = make_pool(api, path, tokens)
    pool_id = {"number": pool["pool_id"], "decimal string": str(pool["pool_id"]), "name": "shared"}
    reply = api.send("POST", path, question(path, tokens, pool_id=pool_id[spelling]))
    assert reply.status == 200
    assert_block(reply.json["opencoti"], pool)
    assert reply.headers["x-pool-id"] == str(pool["pool_id"])
    assert reply.headers["x-cached-prefix-tokens"] == str(pool["prefix_len"])
    assert float(reply.headers["x-session-tps"]) > 0
    assert reply.json["timings"]["cache_n"] == pool["prefix_len"]
    if path.startswith("/v1") or is_chat(path):
        usage = reply.json["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == pool["prefix_len"]
        assert usage["prompt_tokens"] > pool["prefix_len"]


@pytest.mark.parametrize("path", ROUTES)
def test_a_stream_reports_the_pool_in_its_first_and_last_chunk(
    api: Api, tokens: list[int], path: str
) -> None:
    pool = make_pool(api, path, tokens)
    options = {"include_usage": True}
    body = question(path, tokens, pool_id=pool["pool_id"], stream_options=options)
    stream = api.follow(path, body)
    first = stream.chunks[0]["opencoti"]
    assert (first["pool_id"], first["cache_n"]) == (pool["pool_id"], pool["prefix_len"])
    assert_block(stream.last["opencoti"], pool)
    assert not any("opencoti" in chunk for chunk in stream.chunks[1:-1])
    assert stream.headers["x-pool-id"] == str(pool["pool_id"])
    assert stream.headers["x-cached-prefix-tokens"] == str(pool["prefix_len"])
    assert stream.timings["cache_n"] == pool["prefix_len"]
    if path.startswith("/v1"):
        assert stream.last["usage"]["prompt_tokens_details"]["cached_tokens"] == pool["prefix_len"]


def test_a_stream_without_usage_reports_the_pool_in_its_last_chunk(
    api: Api, tokens: list[int]
) -> None:
    path = "/v1/chat/completions"
    pool = make_pool(api, path, tokens)
    stream = api.follow(path, question(path, tokens, pool_id=pool["pool_id"]))
    assert_block(stream.last["opencoti"], pool)


@pytest.mark.parametrize("path", ["/completion", "/v1/chat/completions"])
def test_the_fields_may_come_nested_or_as_headers(
    api: Api, tokens: list[int], path: str
) -> None:
    pool = make_pool(api, path, tokens)
    nested = {"opencoti": {"pool_id": pool["pool_id"], "session_id": "nested"}}
    reply = api.send("POST", path, question(path, tokens, **nested))
    assert_block(reply.json["opencoti"], pool)
    assert reply.json["opencoti"]["session_id"] == "nested"
    headers = {"X-Polykv-Pool": "shared", "X-Polykv-Session": "by header"}
    reply = api.send("POST", path, question(path, tokens), headers)
    assert_block(reply.json["opencoti"], pool)
    assert reply.json["opencoti"]["session_id"] == "by header"


def test_the_answer_from_a_pool_is_the_answer_without_it(api: Api, tokens: list[int]) -> None:
    prompt = tokens[:150] + api.tokens("\n1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,")
    plain = api.complete(prompt, n_predict=24, cache_prompt=False)
    pool_id = api.create_pool(tokens=tokens[:150])["pool_id"]
    pooled = api.complete(prompt, n_predict=24, pool_id=pool_id)
    assert pooled["content"] == plain["content"]
    assert " 13, 14, 15," in pooled["content"]
    assert pooled["tokens_evaluated"] == plain["tokens_evaluated"] == len(prompt)


@pytest.mark.parametrize("match", [1, 2, 37, 149])
def test_a_partial_match_shares_up_to_the_break_and_reports_it(
    api: Api, tokens: list[int], match: int
) -> None:
    pool_id = api.create_pool(tokens=tokens[:150])["pool_id"]
    other = next(token for token in tokens if token != tokens[match])
    prompt = [*tokens[:match], other, *tokens[match + 1 : 180]]
    block = api.complete(prompt, n_predict=2, pool_id=pool_id)["opencoti"]
    assert block["cache_n"] == match
    assert block["prefix_break_at"] == match


def test_no_match_at_all_is_a_miss_with_the_reason_diverged(api: Api, tokens: list[int]) -> None:
    pool_id = api.create_pool(tokens=tokens[:150])["pool_id"]
    other = next(token for token in tokens if token != tokens[0])
    block = api.complete([other, *tokens[1:]], n_predict=2, pool_id=pool_id)["opencoti"]
    assert block["cache_n"] == 0
    assert block["miss_reason"] == "diverged"


@pytest.mark.parametrize("length", [150, 80])
def test_one_token_of_the_prompt_is_left_to_decode(
    api: Api, tokens: list[int], length: int
) -> None:
    pool_id = api.create_pool(tokens=tokens[:150])["pool_id"]
    reply = api.complete(tokens[:length], n_predict=3, ignore_eos=True, pool_id=pool_id)
    assert reply["opencoti"]["cache_n"] == length - 1
    assert reply["tokens_predicted"] == 3


@pytest.mark.parametrize("wanted", [1, 99, 150])
def test_an_explicit_prefix_length_is_taken_when_it_matches(
    api: Api, tokens: list[int], wanted: int
) -> None:
    pool_id = api.create_pool(tokens=tokens[:150])["pool_id"]
    fields = {"pool_id": pool_id, "shared_prefix_n_tokens": wanted}
    assert api.complete(tokens, n_predict=1, **fields)["opencoti"]["cache_n"] == wanted


def test_an_explicit_prefix_length_beyond_the_match_is_refused(
    api: Api, tokens: list[int]
) -> None:
    pool_id = api.create_pool(tokens=tokens[:150])["pool_id"]
    before = api.get("/polykv/pools")
    for prompt, wanted in ((tokens, 151), (tokens[:80] + tokens[:80], 81)):
        fields = {"pool_id": pool_id, "shared_prefix_n_tokens": wanted}
        assert_problem(api.send("POST", "/completion", greedy(prompt, 1, **fields)), 400)
    assert api.cells_used() == before["kv_cells_used"]
    assert api.pool(pool_id)["sessions"] == []


@pytest.mark.parametrize("path", ["/completion", "/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("pool_id", [999_999_999, "999999999", "nobody"])
def test_an_unknown_pool_means_a_full_prefill_with_the_reason_or_404_on_request(
    api: Api, tokens: list[int], path: str, pool_id: int | str
) -> None:
    before = api.metrics()["opencoti_polykv:prefix_miss_total"]
    body = question(path, tokens, pool_id=pool_id, cache_prompt=False)
    reply = api.send("POST", path, body)
    assert reply.status == 200
    assert reply.json["opencoti"]["miss_reason"] == "no_pool"
    assert reply.json["opencoti"]["cache_n"] == 0
    assert api.metrics()["opencoti_polykv:prefix_miss_total"] == before + 1
    refused = api.send("POST", path, {**body, "on_pool_miss": "error"})
    assert_problem(refused, 404, "pool_not_found")


def test_hits_are_counted_in_the_metrics(api: Api, tokens: list[int]) -> None:
    pool_id = api.create_pool(tokens=tokens[:150], name="counted")["pool_id"]
    before = api.metrics()
    api.complete(tokens, n_predict=1, pool_id=pool_id)
    after = api.metrics()
    for name, growth in (
        ("prefix_cache_hits_total", 1),
        ("queries_total", 1),
        ("prefix_cache_hit_tokens_total", 150),
        ("prefix_cache_query_tokens_total", 200),
    ):
        full_name = "opencoti_polykv:" + name
        assert after[full_name] - before.get(full_name, 0) == growth, name


def test_the_series_of_a_released_pool_vanish(api: Api, tokens: list[int]) -> None:
    api.create_pool(tokens=tokens[:150], name="short-lived")
    assert 'pool="short-lived"' in api.send("GET", "/metrics").text
    api.clear()
    assert 'pool="short-lived"' not in api.send("GET", "/metrics").text


def test_several_prompts_and_choices_each_start_from_the_pool(
    api: Api, tokens: list[int]
) -> None:
    pool_id = api.create_pool(tokens=tokens[:150])["pool_id"]
    prompts = [tokens[:150] + api.tokens(f"\n{word}") for word in ("one", "two", "three")]
    results = api.complete(prompts, n_predict=2, pool_id=pool_id)
    assert [result["timings"]["cache_n"] for result in results] == [150, 150, 150]
    choices = api.complete(prompts[0], n_predict=2, n=2, pool_id=pool_id)
    assert [result["index"] for result in choices] == [0, 1]


def test_the_pools_figures_count_what_its_sessions_own(api: Api, tokens: list[int]) -> None:
    pool_id = api.create_pool(tokens=tokens[:150])["pool_id"]
    for session in ("a", "b"):
        api.complete(tokens, n_predict=4, ignore_eos=True, pool_id=pool_id, session_id=session)
    tree = api.get("/polykv/pools")
    pool = tree["pools"][0]
    suffixes = {s["session_id"]: s["suffix_n_tokens"] for s in pool["sessions"]}
    assert set(suffixes) == {"a", "b"}
    assert set(suffixes.values()) <= {53, 54}  # 50 of the prompt, 4 generated, the last not yet fed
    cells = 150 + sum(suffixes.values())
    assert pool["subtree_kv_bytes"] == cells * tree["bytes_per_cell"]
    assert pool["own_kv_bytes"] == 150 * tree["bytes_per_cell"]
    assert all(
        s["marginal_kv_bytes"] == s["suffix_n_tokens"] * tree["bytes_per_cell"]
        for s in pool["sessions"]
    )


def test_an_idle_pooled_request_leaves_only_the_pools_cells(api: Api, tokens: list[int]) -> None:
    before = api.cells_used()
    pool_id = api.create_pool(tokens=tokens[:150])["pool_id"]
    for path in ("/completion", "/v1/completions"):
        api.send("POST", path, {"prompt": tokens, "max_tokens": 4, "pool_id": pool_id})
    assert api.cells_used() == before + 150
    assert api.pool(pool_id)["sessions"] == []
