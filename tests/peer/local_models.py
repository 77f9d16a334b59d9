"""pytest plugin: llama-server's own tests, unchanged, with models of this machine instead of downloads.

PEER_SUITE_MODELS names the folder that tiny_models.py wrote; PEER_SUITE_ONLY, if set, a file with the
tests to run, one "test_file.py::test" a line.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import utils

MODELS = Path(os.environ["PEER_SUITE_MODELS"])
PRESETS = {
    "tinyllama2": "tiny-llama.gguf",
    "tinyllama_infill": "tiny-infill.gguf",
    "stories15m_moe": "tiny-llama.gguf",
    "bert_bge_small": "tiny-bert.gguf",
    "bert_bge_small_with_fa": "tiny-bert.gguf",
    "jina_reranker_tiny": "tiny-rerank.gguf",
}
DOWNLOADS = {"stories15M-q4_0.gguf": "tiny-llama.gguf"}
# They start a server without a model, which makes it a router, but test something else.
SINGLE_MODEL_FILES = ("test_security.py", "test_stream.py", "test_tools_builtin.py")


def _use(server: utils.ServerProcess, model: str) -> utils.ServerProcess:
    server.offline = True
    server.model_hf_repo = None
    server.model_hf_file = None
    server.model_file = str(MODELS / model)
    return server


def _replace_preset(name: str, model: str) -> None:
    original = getattr(utils.ServerPreset, name)
    setattr(utils.ServerPreset, name, staticmethod(lambda: _use(original(), model)))


def _replace_router() -> None:
    original = utils.ServerPreset.router

    def router() -> utils.ServerProcess:
        server = original()
        if any(name in os.environ["PYTEST_CURRENT_TEST"] for name in SINGLE_MODEL_FILES):
            return _use(server, "tiny-llama.gguf")
        return server

    utils.ServerPreset.router = staticmethod(router)


def _download(url: str, output_file_path: str | None = None) -> str:
    name = url.rpartition("/")[2]
    if name not in DOWNLOADS:
        raise RuntimeError(f"this run is offline and has nothing in place of {url}")
    return str(MODELS / DOWNLOADS[name])


for preset, file in PRESETS.items():
    _replace_preset(preset, file)
_replace_router()
utils.ServerPreset.load_all = staticmethod(lambda: None)
utils.download_file = _download
utils.ServerProcess.n_threads = 1  # more would only wait for each other


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    file = os.environ.get("PEER_SUITE_ONLY")
    if file is None:
        return
    wanted = set(Path(file).read_text().splitlines())
    chosen = [item for item in items if item.nodeid.removeprefix("unit/") in wanted]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
