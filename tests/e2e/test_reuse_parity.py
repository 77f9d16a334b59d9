"""What a plain request reuses of earlier ones is what llama-server reuses, with its default flags.

The host prompt cache and context checkpoints decide that, and which slot a request gets. Every
request goes to both servers one at a time and in the same order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import StartServer
from harness.server import ServerProcess
from servers import Servers
from support import Api, greedy

CONTEXT = ("-c", "2048")
# The window cache grows with the number of sequences, and a larger one forgets later.
NO_EXTRA_SEQUENCES = ("--polykv-max-sessions", "0", "--polykv-max-pools", "0")

FOX = "The quick brown fox jumps over the lazy dog and runs away. "
SEA = "Far out at sea, where no ship had been for a hundred years, a light was burning. "
OAK = "Under the old oak there was a door, and behind the door there was a stair going down. "
DELIMITERS = [{"role": "user", "delimiter": "USER"}, {"role": "assistant", "delimiter": "ROBOT"}]


def complete(prompt: Any, n_predict: int = 8, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/completion", greedy(prompt, n_predict, **fields)


def turns(*contents: str) -> str:
    """A conversation as text, its turns marked by DELIMITERS."""
    return " ".join(f"{('USER', 'ROBOT')[i % 2]} {text}" for i, text in enumerate(contents))


def chat(*contents: str) -> tuple[str, dict[str, Any]]:
    """A conversation whose turns alternate between user and assistant."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
    body = {"messages": messages, "max_tokens": 8, "temperature": 0}
    return "/v1/chat/completions", body


# Turns, edits and regenerations of conversations that take turns themselves.
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    complete(FOX * 8),
    complete(FOX * 8),
    complete(SEA * 6),
    complete(FOX * 8 + "More of it"),
    complete(FOX * 3 + "Here it goes another way."),
    complete(SEA * 6 + "And then"),
    complete("short"),
    complete(OAK * 30),
    complete(OAK * 30),
    complete(OAK * 14 + "It went on."),
    complete(OAK * 30 + FOX),
    complete(SEA * 6, id_slot=1),
    complete(SEA * 6, id_slot=0),
    complete(FOX * 8, id_slot=0),
    complete(FOX * 8, cache_prompt=False),
    complete(FOX * 8),
    chat(FOX, "A fox.", SEA),
    chat(FOX, "A fox.", SEA, "A light.", OAK),
    chat(FOX, "A fox.", SEA, "A light.", OAK),
    chat(FOX, "A fox.", OAK),
    chat(FOX * 20, "A fox.", SEA * 20, "A light.", OAK),
    chat(FOX * 20, "A fox.", SEA * 20, "Light.", OAK),
    complete(OAK * 30, n_predict=0),
    # A conversation as a native prompt, cut at its user messages.
    complete(turns(OAK, FOX, SEA), message_delimiters=DELIMITERS),
    complete(turns(OAK, FOX, SEA, OAK * 3), message_delimiters=DELIMITERS),
    complete(turns(OAK, FOX, SEA * 2, OAK * 3), message_delimiters=DELIMITERS),
    complete(turns(OAK, FOX, SEA * 2, FOX), message_delimiters=DELIMITERS),
]


class Step(NamedTuple):
    """What one answer says of reuse, its text, and what the slots hold after it."""

    slot: int  # -1: not said
    n_cached: int
    n_computed: int
    held: list[int]  # tokens of each slot
    text: str


def text_of(answer: Any) -> str:
    return answer["content"] if "content" in answer else answer["choices"][0]["message"]["content"]


def play(server: ServerProcess) -> list[Step]:
    api = Api(server.base_url)
    steps = []
    for path, body in REQUESTS:
        answer = api.post(path, body)
        n_cached = answer["timings"]["cache_n"]
        if "usage" in answer:
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == n_cached
        steps.append(
            Step(
                slot=answer.get("id_slot", -1),
                n_cached=n_cached,
                n_computed=answer["timings"]["prompt_n"],
                held=[slot.get("n_prompt_tokens", 0) for slot in api.get("/slots")],
                text=text_of(answer),
            )
        )
    return steps


def assert_same_reuse(
    servers: Servers, ours: Path, peer: Path, flags: tuple[str, ...], *, texts: bool = True
) -> int:
    """Plays the requests to both; returns how many tokens were reused."""
    flags = (*CONTEXT, "--slots", *flags)
    played = []
    for binary, own in ((ours, NO_EXTRA_SEQUENCES), (peer, ())):
        server = servers.start(binary, (*flags, *own))
        played.append(play(server))
        server.stop()
    for step, (a, b) in enumerate(zip(*played, strict=True)):
        assert a[:-1] == b[:-1], f"request {step}"
        assert not texts or a.text == b.text, f"request {step}"
    return sum(step.n_cached for step in played[0])


@pytest.mark.parametrize(
    ("flags", "texts"),
    [
        ((), True),
        (("--no-cache-idle-slots",), True),
        # llama-server computes in one buffer per slot then, which rounds otherwise.
        (("-np", "2"), False),
    ],
    ids=["default", "idle slots kept", "two slots"],
)
def test_slots_and_cached_tokens_are_equal(
    servers: Servers,
    server_binary: Path,
    peer_binary: Path,
    tiny_models: Path,
    flags: tuple[str, ...],
    texts: bool,
) -> None:
    flags = ("-m", str(tiny_models / "tiny-llama.gguf"), *flags)
    assert assert_same_reuse(servers, server_binary, peer_binary, flags, texts=texts) > 3000


@pytest.mark.parametrize(
    ("architecture", "flags", "n_reused"),
    [
        ("mamba", (), 2000),
        ("jamba", (), 2000),
        ("jamba", ("-ub", "32", "-b", "128", "-ctxcp", "3", "-cms", "20"), 2000),
        ("jamba", ("-ctxcp", "0"), 0),
        ("gemma3", (), 2000),
        ("gemma3", ("--swa-full",), 2000),
        ("gemma3", ("-ub", "32", "-b", "128", "-cms", "20"), 2000),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_checkpoints_give_the_same_reuse(
    servers: Servers,
    server_binary: Path,
    peer_binary: Path,
    tiny_models: Path,
    architecture: str,
    flags: tuple[str, ...],
    n_reused: int,
) -> None:
    flags = ("-m", str(tiny_models / f"tiny-{architecture}.gguf"), *flags)
    assert assert_same_reuse(servers, server_binary, peer_binary, flags) >= n_reused


def test_a_session_goes_on_from_a_checkpoint(start_server: StartServer, tiny_models: Path) -> None:
    api = Api(start_server("-m", str(tiny_models / "tiny-jamba.gguf"), *CONTEXT).base_url)
    first = api.complete(FOX * 8, session_id="s")
    again = api.complete(FOX * 8, session_id="s")
    assert first["timings"]["cache_n"] == 0
    assert again["timings"]["cache_n"] == again["tokens_evaluated"] - 4
    assert again["content"] == first["content"]


def test_the_host_store_reports_its_bytes(start_server: StartServer, tiny_models: Path) -> None:
    model = str(tiny_models / "tiny-llama.gguf")
    api = Api(start_server("-m", model, *CONTEXT, "--cache-ram", "7", "--metrics").base_url)
    assert api.get("/props")["opencoti"]["polykv"]["cache_ram_mib"] == 7
    api.complete(FOX * 8)
    assert api.metrics()["opencoti_polykv:host_tier_bytes"] == 0
    api.complete(SEA * 8)
    assert api.metrics()["opencoti_polykv:host_tier_bytes"] > 0
    assert api.metrics()["opencoti_polykv:host_tier_entries"] == 1
