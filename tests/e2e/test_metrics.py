"""GET /metrics: what the official parser reads, held against /polykv/pools and the requests made."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from support import Api, greedy, read_tokens

OURS = "opencoti_polykv:"
PROMPT = "The same beginning for everybody. "
Families = dict[str, Metric]


def scrape(api: Api) -> Families:
    """Our families by name, without the prefix."""
    text = api.send("GET", "/metrics").text
    return {
        family.name.removeprefix(OURS): family
        for family in text_string_to_metric_families(text)
        if family.name.startswith(OURS)
    }


def per_pool(family: Metric) -> dict[str, float]:
    return {sample.labels["pool"]: sample.value for sample in family.samples}


def series(families: Families) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in families.values()
        for sample in family.samples
    }


def values(families: Families) -> list[Any]:
    return [sample for family in families.values() for sample in family.samples]


def histogram(families: Families, name: str, pool: str | None) -> dict[str, float]:
    """The buckets by their bound, and "sum" and "count"."""
    found: dict[str, float] = {}
    for sample in families[name].samples:
        if sample.labels.get("pool") == pool:
            part = sample.name.removeprefix(f"{OURS}{name}_")
            found[sample.labels["le"] if part == "bucket" else part] = sample.value
    return found


def assert_gauges_are_a_walk(api: Api) -> None:
    """For a server on which nothing moves."""
    families, tree = scrape(api), api.get("/polykv/pools")
    pools = {pool["name"] or str(pool["pool_id"]): pool for pool in tree["pools"]}
    assert per_pool(families["pool_kv_bytes"]) == {
        label: pool["own_kv_bytes"] for label, pool in pools.items()
    }
    assert per_pool(families["pool_sessions"]) == {
        label: len(pool["sessions"]) for label, pool in pools.items()
    }
    assert per_pool(families["gen_throughput_tps"]) == {
        label: sum(session["tps_ewma"] or 0 for session in pool["sessions"])
        for label, pool in pools.items()
    }
    assert per_pool(families["queries"]) == {
        label: pool["queries"] for label, pool in pools.items()
    }
    used = tree["kv_cells_used"] / tree["kv_cells_total"]
    assert families["kv_cache_usage_perc"].samples[0].value == pytest.approx(used)


@pytest.fixture
def pools(api: Api) -> Iterator[list[Any]]:
    root = api.create_pool(prompt=PROMPT, name="root")
    named = api.fork(root, append_prompt="A named fork.", name="fork")
    yield [root, named, api.fork(root, append_prompt="One without a name.")]


def test_gauges_equal_a_walk_over_the_pools(api: Api, pools: list[Any]) -> None:
    for number, pool in enumerate(("root", "root", "fork")):
        api.complete(PROMPT + "Go", 3, pool_id=pool, session_id=f"agent-{number}")
    assert_gauges_are_a_walk(api)
    assert per_pool(scrape(api)["pool_sessions"]) == {
        "root": 2, "fork": 1, str(pools[2]["pool_id"]): 0,
    }
    api.post("/polykv/pools/root/evict", {})
    api.end_session("agent-0")
    assert_gauges_are_a_walk(api)


def test_a_pools_throughput_is_its_sessions(api: Api, pools: list[Any]) -> None:
    body = greedy(PROMPT + "One, two,", 4000, pool_id="root", session_id="busy", ignore_eos=True,
                  stream=True)
    with api.open("/completion", body) as exchange:
        read_tokens(exchange, 20)
        throughput = per_pool(scrape(api)["gen_throughput_tps"])
    assert throughput["root"] > 0
    assert throughput["fork"] == 0


def test_series_go_with_their_pool(api: Api) -> None:
    before = series(scrape(api))
    pool = api.create_pool(prompt=PROMPT, name="short-lived")
    policy = {"target_tps_per_session": 1, "mode": "enforced"}
    api.post("/polykv/pools/short-lived/admission", policy)
    api.complete(PROMPT, 3, pool_id="short-lived")
    new = series(scrape(api)) - before
    assert all(dict(labels)["pool"] == "short-lived" for _, labels in new)
    names = {name.removeprefix(OURS) for name, _ in new}
    assert {"pool_kv_bytes", "pool_sessions", "gen_throughput_tps", "queries_total",
            "prefix_cache_hits_total", "admission_decisions_total", "ttft_seconds_bucket",
            "inter_token_seconds_count"} <= names
    api.release(pool["pool_id"])
    assert series(scrape(api)) == before


def test_two_scrapers_see_the_same(api: Api, pools: list[Any]) -> None:
    api.complete(PROMPT, 3, pool_id="root")
    first, second = scrape(api), scrape(api)
    assert values(first) == values(second)


def test_waits_are_counted_per_token(api: Api, pools: list[Any]) -> None:
    before = scrape(api)
    for _ in range(2):
        api.complete(PROMPT + "Go", 5, pool_id="fork", ignore_eos=True)
    api.complete("Nobody's pool", 4, ignore_eos=True)
    after = scrape(api)
    for name, pool, n in (
        ("ttft_seconds", "fork", 2),
        ("inter_token_seconds", "fork", 8),
        ("ttft_seconds", "root", 0),
        ("ttft_seconds", None, 1),
        ("inter_token_seconds", None, 3),
    ):
        old, new = histogram(before, name, pool), histogram(after, name, pool)
        assert new["count"] - old["count"] == n
        assert new["+Inf"] == new["count"]
        assert new["sum"] > old["sum"] or n == 0
        bounds = sorted((float(bound), count) for bound, count in new.items()
                        if bound not in ("sum", "count"))
        counts = [count for _, count in bounds]
        assert counts == sorted(counts)
        assert bounds[-1][0] == math.inf


def test_decisions_of_the_gate_are_counted(api: Api, pools: list[Any]) -> None:
    policy = {"target_tps_per_session": 1, "mode": "enforced"}
    api.post("/polykv/pools/root/admission", policy)
    api.complete(PROMPT, 2, pool_id="fork", session_id="first")
    api.complete(PROMPT, 2, pool_id="fork", session_id="second", overcommit=True)
    counted = {
        (sample.labels["pool"], sample.labels["decision"]): sample.value
        for sample in scrape(api)["admission_decisions"].samples
    }
    assert counted == {("fork", "guaranteed"): 1, ("fork", "overcommit"): 1}


def test_limits_are_those_that_are_enforced(api: Api) -> None:
    limits, props = api.get("/polykv/limits"), api.get("/props")["opencoti"]["polykv"]
    assert limits["slots"] == 4 and limits["n_ctx"] == 8192
    for name in ("max_pools", "max_sessions", "grace_ms", "seq_ids_max", "watchdog_ms"):
        assert limits[name] == props[name]
    assert "measurement settling" in limits["reasons"]["admission"]
    assert set(limits["reasons"]["miss"]) == {
        sample.labels["reason"] for sample in scrape(api)["prefix_miss"].samples
    }
