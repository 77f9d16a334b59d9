"""Slots saved, restored and erased; the files move between this server and llama-server."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from servers import Servers
from support import Api, assert_problem, greedy, read_tokens

STORY = "The lighthouse keeper counted the waves every night, and every night"


class Pair(NamedTuple):
    ours: Api
    peer: Api


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slots")


@pytest.fixture(scope="module")
def start_pair(
    servers: Servers, server_binary: Path, peer_binary: Path, folder: Path
) -> Callable[[], Pair]:
    flags = ("-c", "512", "-np", "2", "--kv-unified", "--cache-ram", "0", "--slot-save-path",
             str(folder))
    return lambda: Pair(
        *(Api(servers.start(binary, flags).base_url) for binary in (server_binary, peer_binary))
    )


@pytest.fixture(scope="module")
def pair(start_pair: Callable[[], Pair]) -> Pair:
    return start_pair()


def change(api: Api, slot: int | str, action: str, filename: str | None = None) -> Any:
    body = {} if filename is None else {"filename": filename}
    return api.post(f"/slots/{slot}?action={action}", body)


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name != "timings"}


def test_files_move_between_servers_and_across_restarts(
    pair: Pair, start_pair: Callable[[], Pair], folder: Path
) -> None:
    text = ""
    for api, name in zip(pair, ("ours", "peer")):
        text = api.post("/completion", greedy(STORY, 12, id_slot=1))["content"]
        saved = change(api, 1, "save", name)
        assert saved["filename"] == name and saved["id_slot"] == 1
        assert saved["n_written"] == (folder / name).stat().st_size
        assert saved["timings"]["save_ms"] >= 0
        assert saved["n_saved"] > 12
    assert (folder / "ours").read_bytes() == (folder / "peer").read_bytes()
    for name in ("peer", "ours"):
        answers = []
        for api in start_pair() if name == "peer" else pair:
            restored = change(api, 0, "restore", name)
            assert restored["n_restored"] == saved["n_saved"]
            assert restored["n_read"] == saved["n_written"]
            more = api.post("/completion", greedy(STORY + text + " he", 12, id_slot=0))
            counts = {key: more["timings"][key] for key in ("cache_n", "prompt_n")}
            answers.append((without_times(restored), more["content"], counts))
        assert answers[0] == answers[1]
        assert answers[0][2]["cache_n"] >= saved["n_saved"] - 1


def test_an_erased_slot_computes_everything_again(pair: Pair) -> None:
    answers = []
    for api in pair:
        api.post("/completion", greedy(STORY, 4, id_slot=1))
        erased = change(api, 1, "erase")
        again = api.post("/completion", greedy(STORY, 4, id_slot=1))
        assert again["timings"]["cache_n"] == 0
        answers.append((erased, change(api, 3, "erase")))
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("slot", "action", "body"),
    [
        ("first", "save", {"filename": "x"}),
        (0, "copy", {"filename": "x"}),
        (0, "save", {"filename": "../x"}),
        (0, "restore", {"filename": "a/b"}),
        (0, "restore", {"filename": "absent"}),
        (0, "restore", {"filename": "noise"}),
        (0, "restore", {"filename": "long"}),
    ],
)
def test_errors_are_llama_servers(
    pair: Pair, folder: Path, slot: int | str, action: str, body: dict[str, Any]
) -> None:
    for api in pair:
        api.post("/completion", greedy(STORY, 4, id_slot=1))
        change(api, 1, "save", "good")
    good = (folder / "good").read_bytes()
    (folder / "noise").write_bytes(b"noise" * 100)
    n_words = int.from_bytes(good[8:12], "little")
    longer = [*range(100, 700)]
    packed = [0xFFFFFFFF, 1, len(longer), *longer, 0]
    (folder / "long").write_bytes(
        good[:8]
        + b"".join(word.to_bytes(4, "little") for word in (len(packed), *packed))
        + good[12 + 4 * n_words :]
    )
    path = f"/slots/{slot}?action={action}"
    ours, peer = (assert_problem(api.send("POST", path, body), 400) for api in pair)
    assert ours == peer


def test_a_damaged_file_leaves_the_slot_as_it_was(pair: Pair, folder: Path) -> None:
    """llama-server itself aborts on such a file."""
    first = pair.ours.post("/completion", greedy(STORY, 4, id_slot=0))
    change(pair.ours, 0, "save", "whole")
    whole = (folder / "whole").read_bytes()
    n_cells_at = 12 + 4 * int.from_bytes(whole[8:12], "little") + 4  # after the number of streams
    fewer = bytearray(whole)
    fewer[n_cells_at] -= 1
    for damaged in (whole[:-5000], whole[:100], whole + b"more", bytes(fewer)):
        (folder / "damaged").write_bytes(damaged)
        answer = pair.ours.send("POST", "/slots/0?action=restore", {"filename": "damaged"})
        assert_problem(answer, 400, "invalid_request_error")
    again = pair.ours.post("/completion", greedy(STORY, 4, id_slot=0))
    assert again["timings"]["prompt_n"] == 1
    assert again["content"] == first["content"]


def test_a_busy_slot_is_saved_when_it_is_free(pair: Pair) -> None:
    body = greedy(STORY, 60, id_slot=0, ignore_eos=True, stream=True)
    with pair.ours.open("/completion", body) as stream, ThreadPoolExecutor(1) as executor:
        read_tokens(stream, 2)
        saved = executor.submit(change, pair.ours, 0, "save", "busy")
        last = [event.data for event in stream.events()][-1]
        assert saved.result()["n_saved"] == last["tokens_cached"]


def test_without_a_path_there_are_no_actions(api: Api) -> None:
    error = assert_problem(api.send("POST", "/slots/0?action=erase"), 501, "not_supported_error")
    assert "--slot-save-path" in error["message"]
