"""What cannot be started says why in one line and exits with an error."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from harness.server import clean_environment, free_port
from support import TIMEOUT_S


PREFIX = "polykv-server: error: "

# A server that tries an absurd size all the same must not take the machine with it.
MAX_DATA_BYTES = 16 * 2**30


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))


def refusal(binary: Path, flags: Sequence[str]) -> str:
    """Runs the server, which must exit by itself with an error; returns its one error line."""
    result = subprocess.run(
        [str(binary), "--host", "127.0.0.1", *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=clean_environment(),
        timeout=TIMEOUT_S,
        preexec_fn=limit_memory,
        check=False,
    )
    stderr = result.stderr.decode("utf-8", "replace")
    assert result.returncode > 0, f"exit code {result.returncode}\n{stderr}"
    lines = [line for line in stderr.splitlines() if line.startswith(PREFIX)]
    assert len(lines) == 1, stderr
    assert stderr.rstrip().splitlines()[-1] == lines[0], "the error is the last line"
    return lines[0]


def with_port(*flags: str) -> list[str]:
    return [*flags, "--port", str(free_port())]


def test_a_missing_model_file(server_binary: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.gguf")
    assert missing in refusal(server_binary, with_port("-m", missing))


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ((), "--polykv-isolate-keys"),
        (("--api-key", "a", "--polykv-admin-key", "a"), "--polykv-admin-key"),
        (("--api-key", "a", "--spec-type", "ngram-cache"), "ngram-cache"),
    ],
)
def test_keys_that_cannot_be_isolated(
    server_binary: Path, model: Path, flags: Sequence[str], named: str
) -> None:
    flags = with_port("-m", str(model), "--polykv-isolate-keys", *flags)
    assert named in refusal(server_binary, flags)


def test_no_model_at_all(server_binary: Path) -> None:
    assert "model" in refusal(server_binary, with_port())


def test_a_missing_draft_model(server_binary: Path, model: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.gguf")
    flags = with_port("-m", str(model), "--spec-type", "draft-simple", "-md", missing)
    assert missing in refusal(server_binary, flags)


def test_a_quantized_value_cache_without_flash_attention(server_binary: Path, model: Path) -> None:
    flags = with_port("-m", str(model), "-ctv", "q8_0", "-fa", "off")
    assert "flash attention" in refusal(server_binary, flags)


@pytest.mark.parametrize("kind", ["garbage", "empty", "cut off", "a directory"])
def test_a_file_that_is_no_model(
    server_binary: Path, model: Path, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "broken.gguf"
    if kind == "a directory":
        path.mkdir()
    else:
        content = {"garbage": b"GGUF" + os.urandom(5000), "empty": b""}.get(kind)
        if content is None:
            with model.open("rb") as source:
                content = source.read(5_000_000)
        path.write_bytes(content)
    assert str(path) in refusal(server_binary, with_port("-m", str(path)))


def test_a_taken_port(server_binary: Path, model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert port in refusal(server_binary, ["-m", str(model), "--port", port])


@pytest.mark.parametrize("size", ["-5", "2000000000", "99999999999999", "many"])
def test_an_impossible_context_size(server_binary: Path, model: Path, size: str) -> None:
    line = refusal(server_binary, with_port("-m", str(model), "-c", size))
    assert size in line or "-c" in line


@pytest.mark.parametrize("flag", ["--no-such-flag", "--polykv-no-such-flag"])
def test_an_unknown_flag(server_binary: Path, model: Path, flag: str) -> None:
    assert flag in refusal(server_binary, with_port("-m", str(model), flag))


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--polykv-max-pools", "-1"),
        ("--polykv-max-pools", "many"),
        ("--polykv-max-pools", "300"),
        ("--polykv-max-sessions", "-1"),
        ("--polykv-grace-ms", "-1"),
        ("--polykv-drain-ms", "soon"),
    ],
)
def test_a_flag_with_an_impossible_value(
    server_binary: Path, model: Path, flag: str, value: str
) -> None:
    line = refusal(server_binary, with_port("-m", str(model), "-c", "512", flag, value))
    assert flag in line


def test_a_flag_without_its_value(server_binary: Path, model: Path) -> None:
    line = refusal(server_binary, [*with_port("-m", str(model)), "--polykv-max-pools"])
    assert "--polykv-max-pools" in line


def test_more_sequences_than_the_library_has(server_binary: Path, model: Path) -> None:
    line = refusal(server_binary, with_port("-m", str(model), "-c", "512", "-np", "120"))
    assert "256" in line
