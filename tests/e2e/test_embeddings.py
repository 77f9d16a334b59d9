"""--embedding and --reranking: what llama-server answers, and beside it whatever a server does."""

from __future__ import annotations

import base64
import math
import struct
from pathlib import Path
from typing import Any

import openai
import pytest
from harness import client
from servers import Servers
from support import (
    Api,
    Pair,
    assert_problem,
    counted,
    counting,
    eventually,
    greedy,
    read_tokens,
)

TEXTS = ["The sea is calm tonight.", "A cat", "Two plus two is four, and four is even.", "A cat"]
LONG = "The lighthouse keeper counted the waves again. " * 20
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


class Pairs:
    """Both servers with the same flags, started at first use."""

    def __init__(self, servers: Servers, ours: Path, peer: Path) -> None:
        self._servers = servers
        self._binaries = (ours, peer)

    def get(self, *flags: str) -> Pair:
        flags = ("-c", "2048", "-ub", "128", "--embedding", "--metrics", *flags)
        return Pair(
            *(Api(self._servers.shared(binary, flags).base_url) for binary in self._binaries)
        )


@pytest.fixture(scope="module")
def pairs(servers: Servers, server_binary: Path, peer_binary: Path) -> Pairs:
    return Pairs(servers, server_binary, peer_binary)


@pytest.fixture
def mean(pairs: Pairs) -> Pair:
    return pairs.get("--pooling", "mean")


def assert_close(ours: Any, peer: Any, path: str = "") -> None:
    """Equal but for the last bits."""
    if isinstance(peer, dict):
        assert ours.keys() == peer.keys(), path
        for name in peer:
            assert_close(ours[name], peer[name], f"{path}.{name}")
    elif isinstance(peer, list):
        assert len(ours) == len(peer), path
        for i, item in enumerate(peer):
            assert_close(ours[i], item, f"{path}[{i}]")
    elif isinstance(peer, float):
        assert ours == pytest.approx(peer, rel=1e-4, abs=2e-6), path
    else:
        assert ours == peer, path


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(
        sum(x * x for x in a) * sum(y * y for y in b)
    )


@pytest.mark.parametrize(
    "body",
    [
        {"input": TEXTS[0]},
        {"input": TEXTS[0], "model": "mine", "encoding_format": "float"},
        {"input": [504, 3575, 282, 4649]},
        {"input": [504, 3575, " of Spain is"]},
        {"input": {"prompt_string": "A river"}},
        {"input": {"content": [{"type": "text", "text": "A "}, {"type": "text", "text": "river"}]}},
        {"input": TEXTS[0], "embd_normalize": -1},
        {"input": TEXTS[0], "embd_normalize": 0},
        {"input": TEXTS[0], "encoding_format": "base64"},
        {"content": TEXTS[0]},
    ],
    ids=["text", "model", "tokens", "mixed", "object", "content parts", "raw", "int16", "base64",
         "content"],
)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings"])
def test_one_input_gives_the_same_bytes(mean: Pair, path: str, body: dict[str, Any]) -> None:
    ours, peer = (api.post(path, body) for api in mean)
    assert ours == peer


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embeddings", "/embedding"])
def test_several_inputs_give_the_same_vectors_in_order(mean: Pair, path: str) -> None:
    body = {"input": [TEXTS[0], TEXTS[1], [504, 3575], {"prompt_string": "A river"}]}
    ours, peer = (api.post(path, body) for api in mean)
    assert_close(ours, peer)


def test_more_inputs_than_a_batch_has_sequences(mean: Pair) -> None:
    inputs = [f"Number {i}" for i in range(80)]
    data = mean.ours.post("/v1/embeddings", {"input": inputs})["data"]
    assert [item["index"] for item in data] == list(range(80))
    for i in (0, 43, 79):
        alone = mean.ours.post("/v1/embeddings", {"input": inputs[i]})["data"][0]
        # Larger batches go through other kernels, and weights of four bits show it.
        assert cosine(data[i]["embedding"], alone["embedding"]) > 0.998


@pytest.mark.parametrize("pooling", ["last", "cls"])
def test_other_poolings(pairs: Pairs, pooling: str) -> None:
    ours, peer = (
        api.post("/v1/embeddings", {"input": TEXTS}) for api in pairs.get("--pooling", pooling)
    )
    assert_close(ours, peer)


def test_a_prompt_longer_than_a_micro_batch_where_the_last_token_counts(pairs: Pairs) -> None:
    pair = pairs.get("--pooling", "last")
    assert len(pair.ours.tokens(LONG)) > 128
    ours, peer = (api.post("/v1/embeddings", {"input": LONG}) for api in pair)
    assert_close(ours, peer)
    too_long = {"input": [504] * 2048}
    ours, peer = (assert_problem(api.send("POST", "/embeddings", too_long), 400) for api in pair)
    assert ours == peer


def test_without_pooling_every_token_has_a_vector(pairs: Pairs) -> None:
    pair = pairs.get("--pooling", "none")
    ours, peer = (api.post("/embeddings", {"input": ["A river", TEXTS[0]]}) for api in pair)
    assert_close(ours, peer)
    replies = [api.send("POST", "/v1/embeddings", {"input": "A river"}) for api in pair]
    assert (replies[0].status, replies[0].json) == (replies[1].status, replies[1].json)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {}),
        ("/v1/embeddings", {"input": []}),
        ("/v1/embeddings", {"input": ""}),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}),
        ("/v1/embeddings", {"input": LONG}),
        ("/v1/embeddings", {"input": ["fits", LONG]}),
        ("/rerank", {"query": "a", "documents": ["b"]}),
        ("/v1/embeddings", {"input": {"content": [IMAGE]}}),
    ],
    ids=["no input", "no inputs", "empty", "format", "too large", "one too large", "rerank", "image"],
)
def test_errors_are_llama_servers(mean: Pair, path: str, body: dict[str, Any]) -> None:
    ours, peer = (api.send("POST", path, body) for api in mean)
    assert ours.status == peer.status >= 400
    assert ours.json == peer.json


@pytest.mark.parametrize(
    "body",
    [
        {"input": None},
        {"input": {"content": "text"}},
        {"input": [[504, 999_999]]},
        {"input": [{"prompt_string": [-1, "a"]}]},
        {"input": [504, 1e300]},
        {"input": "a", "encoding_format": 7},
        {"input": "a", "embd_normalize": "much"},
    ],
)
def test_bad_input_is_the_clients_fault(mean: Pair, body: dict[str, Any]) -> None:
    assert_problem(mean.ours.send("POST", "/v1/embeddings", body), 400)
    assert mean.ours.post("/v1/embeddings", {"input": "a"})["data"]


@pytest.mark.parametrize(
    "body",
    [
        {"query": "What is granite?", "documents": TEXTS[:1], "model": "mine"},
        {"query": "What is granite?", "documents": TEXTS[:1], "top_n": 0},
        {"query": "What is granite?", "texts": TEXTS[:1], "return_text": True},
    ],
    ids=["jina", "top", "tei"],
)
def test_a_rank_is_llama_servers(pairs: Pairs, body: dict[str, Any]) -> None:
    """One document: the model is no reranker, and its scores of several mean nothing."""
    ours, peer = (api.post("/v1/rerank", body) for api in pairs.get("--reranking"))
    assert_close(ours, peer)


def test_ranks_are_sorted_and_cut(pairs: Pairs) -> None:
    body = {"query": "What is granite?", "documents": TEXTS, "top_n": 3}
    answer = pairs.get("--reranking").ours.post("/reranking", body)
    scores = [result["relevance_score"] for result in answer["results"]]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    assert answer["usage"]["prompt_tokens"] > len(TEXTS)


@pytest.mark.parametrize(
    "body",
    [{"documents": ["a"]}, {"query": 1, "documents": ["a"]}, {"query": "a"},
     {"query": "a", "documents": [1]}, {"query": "a", "documents": ["b"], "top_n": -1}],
)
def test_bad_rerank_requests(pairs: Pairs, body: dict[str, Any]) -> None:
    assert_problem(pairs.get("--reranking").ours.send("POST", "/reranking", body), 400)


def test_without_the_flags_the_routes_say_so(api: Api) -> None:
    for path in ("/v1/embeddings", "/rerank"):
        assert_problem(api.send("POST", path, {"input": "a"}), 501, "not_supported_error")


def test_openais_client(mean: Pair) -> None:
    openai_client = openai.OpenAI(base_url=mean.ours.base_url + "/v1", api_key="none")
    answer = openai_client.embeddings.create(model="any", input=TEXTS)  # asks for base64
    assert [item.index for item in answer.data] == [0, 1, 2, 3]
    assert sum(x * x for x in answer.data[0].embedding) == pytest.approx(1, abs=1e-4)
    assert answer.usage.prompt_tokens == sum(len(mean.ours.tokens(text)) for text in TEXTS)
    reply = mean.ours.post("/v1/embeddings", {"input": TEXTS[0], "encoding_format": "base64"})
    raw = base64.b64decode(reply["data"][0]["embedding"])
    assert_close(list(struct.unpack(f"{len(raw) // 4}f", raw)), answer.data[0].embedding)


def test_completions_go_on_beside_embeddings(mean: Pair) -> None:
    alone = mean.ours.complete(counting(1), 60)["content"]
    assert alone == counted(31, 20)[: len(alone)]
    with mean.ours.open("/completion", greedy(counting(1), 60, stream=True)) as stream:
        chunks = read_tokens(stream, 4)
        for _ in range(3):
            assert len(mean.ours.post("/v1/embeddings", {"input": TEXTS})["data"]) == len(TEXTS)
        chunks += [event.data for event in stream.events()]
    assert "".join(client.chunk_text(chunk) for chunk in chunks) == alone


def test_a_client_that_leaves_is_dropped(mean: Pair) -> None:
    def cancelled() -> float:
        return mean.ours.metrics()["opencoti_polykv:cancelled_total"]

    before = cancelled()
    mean.ours.open("/v1/embeddings", {"input": [LONG[:400]] * 500}).drop()
    eventually(lambda: cancelled() == before + 1, "the request is cancelled")


def test_status_routes_work(mean: Pair) -> None:
    for path in ("/health", "/props", "/v1/models", "/slots"):
        ours, peer = (api.send("GET", path) for api in mean)
        assert ours.status == peer.status == 200
    for api in mean:
        assert api.tokens("A river") and api.get("/props")["total_slots"] == 4
