"""Speculative decoding: the text of the model alone, llama-server's counts, and pools that do not
make drafts worse."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import StartServer
from servers import Servers
from support import Api, Pair, assert_as_alone, counted, counting, greedy

FLAGS = ("-c", "4096", "-np", "4", "--kv-unified", "--slots", "--metrics", "--cache-ram", "0")
NGRAMS = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3",
          "--spec-ngram-simple-size-m", "6")


def copying(start: int, length: int = 12) -> str:
    """A prompt that the model continues with what stands in it already."""
    line = "\n" + ", ".join(str(number) for number in range(start, start + length)) + "."
    return 3 * line + "\n"


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/completion", greedy(counting(100), 20)),
    ("/completion", greedy(counting(100), 21)),
    ("/completion", greedy(copying(200) + "200, 201,", 40)),
    ("/completion", greedy("The old lighthouse keeper looked at the sea and", 20)),
    ("/completion", greedy(counting(100), 60, stop=["133"])),
    ("/completion", greedy("Two plus two is", 1)),
    ("/completion", {**greedy(copying(200), 20), "temperature": 0.7, "seed": 5}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me about the moon."}],
                              "max_tokens": 20, "temperature": 0}),
]


@pytest.fixture(scope="module", params=["draft model", "n-grams"])
def pair(
    request: pytest.FixtureRequest,
    servers: Servers,
    server_binary: Path,
    peer_binary: Path,
    model: Path,
) -> Pair:
    """Both servers, fresh, with the same kind of drafts; the draft model is the model itself."""
    kinds = {
        "draft model": ("--spec-type", "draft-simple", "-md", str(model), "--spec-draft-n-max", "6"),
        "n-grams": NGRAMS,
    }
    flags = (*FLAGS, *kinds[request.param])
    return Pair(*(Api(servers.shared(binary, flags).base_url)
                  for binary in (server_binary, peer_binary)))


def steady(value: Any) -> Any:
    """The value without ids, times and slots."""
    if isinstance(value, dict):
        volatile = {"timings", "id", "id_slot", "created", "system_fingerprint"}
        return {name: steady(item) for name, item in value.items() if name not in volatile}
    if isinstance(value, list):
        return [steady(item) for item in value]
    return value


def drafts(body: Any) -> tuple[int, int]:
    """How many tokens were drafted, and how many of them accepted."""
    return body["timings"].get("draft_n", 0), body["timings"].get("draft_n_accepted", 0)


def test_bodies_and_counts_are_llama_servers(pair: Pair) -> None:
    total = 0
    for path, body in REQUESTS:
        ours, peer = (api.post(path, body) for api in pair)
        assert steady(ours) == steady(peer)
        assert drafts(ours) == drafts(peer)
        total += drafts(ours)[1]
    assert total > 20, "nothing was speculated"
    ours_metrics, peer_metrics = (api.metrics() for api in pair)
    for name, value in peer_metrics.items():
        if "spec_decode" in name:
            assert ours_metrics[name] == value, name
    assert all(slot["speculative"] for slot in pair.ours.get("/slots"))


def test_a_stream_has_every_token_in_a_chunk_of_its_own(pair: Pair) -> None:
    ours, peer = (api.follow("/completion", greedy(counting(100), 20)) for api in pair)
    assert [steady(chunk) for chunk in ours.chunks] == [steady(chunk) for chunk in peer.chunks]


def test_streams_at_once_say_what_they_say_alone(pair: Pair) -> None:
    starts = (700, 740, 780, 820)
    exchanges = [pair.ours.open("/completion", greedy(counting(start), 20, stream=True))
                 for start in starts]
    for start, exchange in zip(starts, exchanges, strict=True):
        text = "".join(event.data["content"] for event in exchange.events())
        assert text.startswith(counted(start + 30, 3))


def test_a_pool_does_not_make_drafts_worse(pair: Pair) -> None:
    api = pair.ours
    prefix = counting(1000) + copying(1100)
    api.create_pool(prompt=prefix, name="shared")
    accepted: dict[str, list[int]] = {"pooled": [0, 0], "plain": [0, 0]}
    for start in (100, 200):
        prompt = prefix + copying(start) + f"{start}, {start + 1},"
        plain = api.complete(prompt, 30, cache_prompt=False)
        pooled = api.complete(prompt, 30, pool_id="shared")
        assert pooled["content"] == plain["content"]
        assert pooled["opencoti"]["cache_n"] >= len(api.tokens(prefix)) - 1
        for name, body in (("pooled", pooled), ("plain", plain)):
            for i, count in enumerate(drafts(body)):
                accepted[name][i] += count
    api.clear()
    rates = {name: right / max(1, n) for name, (n, right) in accepted.items()}
    assert rates["plain"] > 0.3
    assert rates["pooled"] >= 0.9 * rates["plain"]


def test_the_text_is_that_of_a_server_without_drafts(pair: Pair, api: Api) -> None:
    with_drafts = pair.ours.complete(counting(900), 40)
    assert with_drafts["content"] == api.complete(counting(900), 40)["content"]


def test_a_session_goes_on_after_drafts(pair: Pair) -> None:
    api = pair.ours
    first = api.complete(counting(150), 12, session_id="s")
    second = api.complete(counting(150) + first["content"] + counting(200), 12, session_id="s")
    assert second["opencoti"]["cache_n"] > len(api.tokens(counting(150)))
    assert second["content"].startswith(counted(230, 2))
    api.clear()


def test_wrong_drafts_are_taken_back_where_windows_have_moved(
    start_server: StartServer, tiny_models: Path
) -> None:
    """Four windows that just fit take each other's cells as soon as these are behind them."""
    model = ("-m", str(tiny_models / "tiny-gemma3.gguf"), "-c", "2048", "-np", "4", "-ub", "32")
    flags = (*model, "--kv-unified", "--polykv-max-pools", "0", "--polykv-max-sessions", "0")
    guesses = ("--spec-type", "draft-simple", "-md", str(tiny_models / "tiny-llama.gguf"),
               "--spec-draft-n-max", "4", "--spec-draft-p-min", "0")
    plain, drafting = (Api(start_server(*flags, *more).base_url) for more in ((), guesses))
    prompts = [copying(start) for start in (200, 300, 400, 500)]
    with ThreadPoolExecutor(len(prompts)) as executor:
        replies = list(executor.map(lambda p: drafting.complete(p, 200, ignore_eos=True), prompts))
    for prompt, reply in zip(prompts, replies, strict=True):
        assert_as_alone(reply["content"], plain.complete(prompt, 200, ignore_eos=True, n_probs=2))
        n_drafted, n_accepted = drafts(reply)
        assert n_drafted - n_accepted > 20
