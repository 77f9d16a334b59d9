"""Compares answers byte for byte, but for what is new in every answer."""

from __future__ import annotations

import difflib
import re

from harness.client import Reply

# Made at random for each answer. The same id stands for the same thing all through the answer.
_ID = re.compile(r'"(?:id|item_id|call_id)":"([a-z_-]*[A-Za-z0-9]{32})"')
# Durations, speeds, points in time, builds, counters of all that a server was asked.
_NUMBER = re.compile(
    r'"(created|created_at|completed_at|id_task|(?:prompt|predicted)_(?:ms|per_token_ms|per_second)'
    r'|time_ms)":(?:[-+.0-9eE]+|null)'
)
_CHANCE = re.compile(r'"(logprob|prob)":([-+.0-9eE]+)')
_TEXT = re.compile(r'"(system_fingerprint|build_info|media_marker)":"[^"]*"')


def masked(body: str) -> str:
    """The body with ids numbered in their order, and times and builds taken out."""
    numbers: dict[str, str] = {}
    for value in _ID.findall(body):
        numbers.setdefault(value, f"id-{len(numbers)}")
    for value, number in numbers.items():
        body = body.replace(value, number)
    return _TEXT.sub(r'"\1":"*"', _NUMBER.sub(r'"\1":*', body))


def shown(reply: Reply) -> str:
    """Status, content type and masked body."""
    head = f"{reply.status} {reply.headers.get('content-type')}"
    return f"{head}\n{masked(reply.body.decode('utf-8', 'replace'))}"


def without_chances(text: str) -> tuple[str, list[float]]:
    """The text without the numbers of its probabilities, and those."""
    return _CHANCE.sub(r'"\1":*', text), [float(number) for _, number in _CHANCE.findall(text)]


def difference(ours: str, peer: str) -> str:
    """What differs, field by field; empty when nothing does."""
    lines = [re.sub(r'([,{\[])(["{\[])', r"\1\n\2", text).splitlines() for text in (peer, ours)]
    return "\n".join(difflib.unified_diff(*lines, "llama-server", "ours", lineterm="", n=2))
