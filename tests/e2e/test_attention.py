"""--polykv-attention: our own kernel computes attention, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from servers import Servers
from support import Api

FLAGS = ("-c", "4096", "-np", "4", "--kv-unified", "--metrics")
PROMPT = "The history of the lighthouse began long before the first ships came. " * 20


@pytest.fixture(scope="module")
def ours(servers: Servers, server_binary: Path) -> Api:
    return Api(servers.shared(server_binary, (*FLAGS, "--polykv-attention", "on")).base_url)


@pytest.fixture(scope="module")
def ggmls(servers: Servers, server_binary: Path) -> Api:
    return Api(servers.shared(server_binary, (*FLAGS, "--polykv-attention", "off")).base_url)


def attention(api: Api) -> Any:
    return api.get("/props")["opencoti"]["polykv"]["attention"]


def test_operations_are_counted_by_kernel(ours: Api, ggmls: Api) -> None:
    for api, kernel, other in ((ours, "polykv", "ggml"), (ggmls, "ggml", "polykv")):
        before = attention(api)
        assert before["kernel"] == kernel
        api.complete("Once upon a time", 4)
        after = attention(api)
        assert after["operations"][kernel] > before["operations"][kernel]
        assert after["operations"][other] == before["operations"][other]
        n_counted = api.metrics()["opencoti_polykv:attention_operations_total"]
        assert n_counted == sum(after["operations"].values())


def first_token(api: Api, **fields: Any) -> Any:
    answer = api.complete(PROMPT + "And then", 1, n_probs=5, cache_prompt=False, **fields)
    return answer["completion_probabilities"][0]


def test_the_model_says_the_same(ours: Api, ggmls: Api) -> None:
    pool = ours.create_pool(prompt=PROMPT)["pool_id"]
    theirs = first_token(ggmls)
    for fields in ({}, {"pool_id": pool}):
        token = first_token(ours, **fields)
        assert token["id"] == theirs["id"]
        assert token["logprob"] == pytest.approx(theirs["logprob"], abs=0.3)
