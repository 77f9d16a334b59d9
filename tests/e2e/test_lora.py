"""LoRA adapters: of the server, of a request, of a pool; llama-server's text."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import random_adapter
from servers import Servers
from support import Api, assert_problem, counting, greedy

STRENGTH = 0.02
OFF = [{"id": 0, "scale": 0.0}]
FIRST = [{"id": 0, "scale": 1.0}]
SECOND = [{"id": 1, "scale": 1.0}]
BOTH = [{"id": 0, "scale": 0.5}, {"id": 1, "scale": -0.5}]


class Pair(NamedTuple):
    ours: Api
    peer: Api


@pytest.fixture(scope="module")
def adapters(model: Path, llama_source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("adapters")
    return [
        str(random_adapter.write(llama_source, model, folder / f"{seed}.gguf", seed, STRENGTH))
        for seed in (1, 2)
    ]


@pytest.fixture(scope="module")
def pair(
    servers: Servers, server_binary: Path, peer_binary: Path, adapters: list[str]
) -> Pair:
    """Both servers: the first adapter at 0.25, the second not applied."""
    flags = ("-c", "2048", "-np", "4", "--kv-unified", "--cache-ram", "0", "--lora-scaled",
             f"{adapters[0]}:0.25,{adapters[1]}:0")
    return Pair(*(Api(servers.start(b, flags).base_url) for b in (server_binary, peer_binary)))


def shown(answer: dict[str, Any]) -> dict[str, Any]:
    """What must not differ."""
    counts = {name: answer["timings"][name] for name in ("cache_n", "prompt_n", "predicted_n")}
    return {"content": answer["content"], "lora": answer["generation_settings"]["lora"], **counts}


def test_the_servers_adapters_are_shown_and_changed_as_in_llama_server(pair: Pair) -> None:
    first = [api.get("/lora-adapters") for api in pair]
    assert first[0] == first[1]
    assert [adapter["scale"] for adapter in first[0]] == [0.25, 0.0]
    for body in (SECOND, [], [{"id": 9, "scale": 1.0}], [{"id": 0, "scale": 0.25}]):
        answers = [api.post("/lora-adapters", body) for api in pair]
        assert answers[0] == answers[1] == {"success": True}
        now = [api.get("/lora-adapters") for api in pair]
        assert now[0] == now[1]
    assert now[0] == first[0]
    ours, peer = (assert_problem(api.send("POST", "/lora-adapters", {}), 400) for api in pair)
    assert ours == peer


@pytest.mark.parametrize("prompt", [counting(31), "The old lighthouse keeper"])
def test_each_set_gives_llama_servers_text(pair: Pair, prompt: str) -> None:
    """Alternating on one slot: a prompt computed with another set is computed again."""
    texts = set()
    for fields in ({}, {"lora": FIRST}, {"lora": FIRST}, {"lora": SECOND}, {"lora": BOTH},
                   {"lora": OFF}):
        body = greedy(prompt, 16, id_slot=0, **fields)
        ours, peer = (shown(api.post("/completion", body)) for api in pair)
        assert ours == peer
        texts.add(ours["content"])
    assert prompt.startswith("\n") or len(texts) > 2


def test_four_streams_of_two_sets_at_once(pair: Pair) -> None:
    bodies = [
        greedy(counting(11 + 20 * i), 32, lora=(FIRST, SECOND)[i % 2], id_slot=i) for i in range(4)
    ]
    texts = []
    for api in pair:
        with ThreadPoolExecutor(4) as executor:
            answers = list(executor.map(lambda body, api=api: api.follow("/completion", {**body, "stream": True}).text, bodies))
        texts.append(answers)
    assert texts[0] == texts[1]


def test_what_the_servers_set_left_in_a_slot_is_not_reused_under_another(pair: Pair) -> None:
    body = greedy("A prompt of its own for this slot", 4, id_slot=3)
    pair.ours.post("/completion", body)
    pair.ours.post("/lora-adapters", FIRST)
    try:
        other = pair.ours.post("/completion", body)
        again = pair.ours.post("/completion", body)
    finally:
        pair.ours.post("/lora-adapters", [{"id": 0, "scale": 0.25}])
    assert other["timings"]["cache_n"] == 0
    assert again["timings"]["prompt_n"] == 1
    assert again["content"] == other["content"]


def test_a_pool_serves_its_set_only(pair: Pair) -> None:
    api = pair.ours
    prompt = counting(51)
    pool = api.post("/polykv/pools", {"prompt": prompt})
    other = api.complete(prompt + " 81", 4, pool_id=pool["pool_id"], lora=SECOND)
    assert other["opencoti"]["miss_reason"] == "adapter"
    assert other["opencoti"]["cache_n"] == 0
    assert other["content"] == api.complete(prompt + " 81", 4, lora=SECOND)["content"]
    same = api.complete(prompt + " 81", 4, pool_id=pool["pool_id"])
    assert same["opencoti"]["cache_n"] == pool["prefix_len"]
    assert "miss_reason" not in same["opencoti"]
    api.delete(f"/polykv/pools/{pool['pool_id']}?force=1")

