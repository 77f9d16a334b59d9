"""Real text for prompts: the documentation of the llama.cpp tree that the project is built on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness import client

DOCUMENT_FILES = (
    "LICENSE",
    "README.md",
    "CONTRIBUTING.md",
    "docs/build.md",
    "tools/server/README.md",
)

QUESTIONS = (
    "Which licence does the project have, and what must copies of it include?",
    "What is the main goal of the project?",
    "How can somebody get the software installed quickly?",
    "Which hardware backends does the document mention?",
    "What does the document say about quantization?",
    "Which command-line tools does the document describe?",
    "How should a newcomer contribute a change?",
    "Who is liable for damages that the software causes?",
)


def document(llama_source: str | Path, files: Sequence[str] = DOCUMENT_FILES) -> str:
    """The files one after another, each under its name. Raises FileNotFoundError if one is missing."""
    root = Path(llama_source)
    parts = [f"=== {name} ===\n{(root / name).read_text(encoding='utf-8')}" for name in files]
    return "\n".join(parts)


def tokenize(base_url: str, text: str, add_special: bool = False) -> list[int]:
    """The server's tokens for `text`."""
    body = {"content": text, "add_special": add_special}
    return client.call(base_url, "POST", "/tokenize", body)["tokens"]


def detokenize(base_url: str, tokens: Sequence[int]) -> str:
    """The text of `tokens`."""
    return client.call(base_url, "POST", "/detokenize", {"tokens": list(tokens)})["content"]


def cut(tokens: Sequence[int], start: int, n_tokens: int) -> list[int]:
    """`n_tokens` from `start` on; after the last token the first one follows."""
    return [tokens[(start + i) % len(tokens)] for i in range(n_tokens)]


def shorten(base_url: str, text: str, n_tokens: int) -> str:
    """The beginning of `text` that takes at most about `n_tokens`, cut after a whole line."""
    tokens = tokenize(base_url, text)
    if len(tokens) <= n_tokens:
        return text
    cut = detokenize(base_url, tokens[:n_tokens])
    return cut[: cut.rfind("\n") + 1] or cut
