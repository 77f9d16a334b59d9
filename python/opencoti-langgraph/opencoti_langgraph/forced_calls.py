"""A tool call that the model cannot avoid: its JSON is the only answer that the grammar leaves."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk

HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*(?=\S)')
END = re.compile(r"\s*\}?\s*$")


def call_schema(tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The JSON schema of a call of one of `tools`, which are OpenAI's."""
    calls = [_schema_of(tool["function"]) for tool in tools]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


def _schema_of(function: dict[str, Any]) -> dict[str, Any]:
    arguments = function.get("parameters") or {"type": "object", "properties": {}}
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": arguments},
        "required": ["name", "arguments"],
    }


@dataclass
class ForcedCallReader:
    """Turns the text of such a call, piece by piece, into chunks of a tool call."""

    id: str = field(default_factory=lambda: f"call_{uuid4().hex}")
    _text: str = ""
    """What has come and is not told yet."""
    _named: bool = False

    def take(self, piece: str) -> list[ToolCallChunk]:
        """None or one chunk."""
        self._text += piece
        name = None
        if not self._named:
            head = HEAD.match(self._text)
            if head is None:
                return []
            self._named = True
            self._text = self._text[head.end() :]
            name = json.loads(head[1])
        # The last brace closes the call, not its arguments.
        end = END.search(self._text)
        told = self._text[: end.start()] if end else self._text
        self._text = self._text[len(told) :]
        if not told and name is None:
            return []
        return [tool_call_chunk(name=name, args=told, id=self.id if name else None, index=0)]

    def rest(self) -> str:
        """What came and was no call: the answer was cut before its arguments began."""
        return "" if self._named else self._text
