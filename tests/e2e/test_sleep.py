"""--sleep-idle-seconds: an idle server unloads its model, and loads it again for who needs it."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.server import ServerProcess
from servers import Servers
from support import Api, assert_problem, eventually, greedy

FLAGS = ("-c", "2048", "-np", "2", "--kv-unified", "--metrics", "--slots",
         "--sleep-idle-seconds", "1", "--polykv-grace-ms", "0")
PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def server(servers: Servers, server_binary: Path) -> ServerProcess:
    return servers.shared(server_binary, FLAGS)


@pytest.fixture
def api(server: ServerProcess) -> Iterator[Api]:
    yield Api(server.base_url)
    assert server.process.poll() is None, "the server has died"


def is_sleeping(api: Api) -> bool:
    return api.get("/props")["is_sleeping"]


def let_sleep(api: Api) -> None:
    eventually(lambda: is_sleeping(api), "the server sleeps")


def has_model(server: ServerProcess, model: Path) -> bool:
    return str(model) in Path(f"/proc/{server.process.pid}/maps").read_text(encoding="utf-8")


def test_a_sleeping_server_has_no_model_and_still_tells_of_it(
    api: Api, server: ServerProcess, model: Path
) -> None:
    text = api.complete(PROMPT, 8)["content"]
    assert has_model(server, model)
    awake = {path: api.get(path) for path in ("/props", "/v1/models", "/health")}
    api.send("GET", "/metrics")  # its rates cover the time since the last reading
    metrics = api.send("GET", "/metrics").text
    let_sleep(api)
    eventually(lambda: not has_model(server, model), "the model is unloaded")
    assert api.get("/props") == {**awake["/props"], "is_sleeping": True}
    assert api.get("/v1/models")["data"][0]["meta"] == awake["/v1/models"]["data"][0]["meta"]
    assert api.get("/health?ready=1") == awake["/health"]
    assert api.send("GET", "/metrics").text == metrics
    assert_problem(api.send("GET", "/v1/stream?conv_id=unknown"), 404)
    assert (api.get("/polykv/pools")["pools"], api.sessions()) == ([], {})
    assert is_sleeping(api)
    assert api.complete(PROMPT, 8)["content"] == text
    assert not is_sleeping(api)
    assert api.metrics()["llamacpp:tokens_predicted_total"] >= 16  # the count goes on


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/tokenize", {"content": "Hi"}),
        ("POST", "/v1/chat/completions", {"messages": [], "stream": True, "max_tokens": 1}),
        ("POST", "/polykv/pools", {"tokens": [1, 2, 3]}),
    ],
)
def test_what_needs_the_model_wakes_it(api: Api, method: str, path: str, body: Any) -> None:
    let_sleep(api)
    assert api.send(method, path, body).status == 200
    assert not is_sleeping(api)
    api.clear()


def test_everybody_who_comes_while_it_wakes_is_answered(api: Api) -> None:
    expected = api.complete(PROMPT, 4)["content"]
    for _ in range(2):
        let_sleep(api)
        texts: list[str] = []
        looks: list[bool] = []

        def complete(texts: list[str] = texts) -> None:
            texts.append(api.stream(PROMPT, 4).text)

        def look(looks: list[bool] = looks) -> None:
            looks.append(is_sleeping(api))

        threads = [threading.Thread(target=target) for target in [complete, look] * 6]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert texts == [expected] * 6
        assert len(looks) == 6


def test_pools_and_sessions_keep_it_awake(api: Api) -> None:
    pool = api.create_pool(tokens=list(range(1, 40)))["pool_id"]
    api.complete(list(range(1, 50)), 2, pool_id=pool, session_id="s")
    time.sleep(1.6)
    assert not is_sleeping(api)
    api.release(pool)
    time.sleep(1.6)
    assert not is_sleeping(api), "the session is still there"
    api.end_session("s")
    let_sleep(api)


def test_a_running_stream_keeps_it_awake(api: Api) -> None:
    with api.open("/completion", greedy(PROMPT, 1900, ignore_eos=True, stream=True)) as exchange:
        exchange.head()
        time.sleep(1.6)
        assert not is_sleeping(api)
    let_sleep(api)


def test_a_sleeping_server_ends_at_once(start_server: Callable[..., ServerProcess]) -> None:
    server = start_server(*FLAGS)
    let_sleep(Api(server.base_url))
    server.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0


def test_a_model_that_cannot_be_loaded_again_is_an_answer(
    start_server: Callable[..., ServerProcess], model: Path, tmp_path: Path
) -> None:
    copy, gone = tmp_path / "model.gguf", tmp_path / "gone.gguf"
    shutil.copyfile(model, copy)
    api = Api(start_server(*FLAGS, "-m", str(copy)).base_url)
    let_sleep(api)
    copy.rename(gone)
    assert_problem(api.send("POST", "/completion", greedy(PROMPT, 1)), 500)
    assert is_sleeping(api)
    gone.rename(copy)
    assert api.complete(PROMPT, 1)["tokens_predicted"] == 1
