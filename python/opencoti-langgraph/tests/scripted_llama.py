"""The chat route as llama-server answers it, by a model that does what it is told.

It calls the first tool unless a result has just come; it fills schemas with what the last message
quotes or counts; else it says one sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.scripted_server import Asked, Reply, ScriptedServer, data_event

CHAT = "POST /v1/chat/completions"
SENTENCE = "All is well here."
PIECE = 5  # characters in a chunk of a stream


class ScriptedLlama:
    """Answers chats on a scripted server."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server = server
        self.says: list[dict[str, Any]] = []
        """Messages to answer with first, in turn."""
        self.block: dict[str, Any] | None = None
        """The `opencoti` object of answers to requests that name a pool or a session."""
        server.routes[CHAT] = self.answer

    @property
    def bodies(self) -> list[Any]:
        """Those of the chats that were asked for."""
        return [asked.body for asked in self.server.asked if asked.path.endswith("/completions")]

    def answer(self, asked: Asked) -> Reply:
        body = asked.body
        message = self.says.pop(0) if self.says else _message(body)
        end = self._end(body)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        if body.get("stream"):
            return Reply(events=_events(message, reason, end))
        choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", **message}}
        return Reply({"object": "chat.completion", "choices": [choice], **end})

    def _end(self, body: dict[str, Any]) -> dict[str, Any]:
        usage = {"prompt_tokens": 20, "completion_tokens": 6, "total_tokens": 26}
        end: dict[str, Any] = {
            "id": f"chatcmpl-{len(self.bodies)}",
            "model": "scripted.gguf",
            "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 12}},
            "timings": {"cache_n": 12},
        }
        if self.block is not None and ("pool_id" in body or "session_id" in body):
            end["opencoti"] = self.block
        return end


def _events(message: dict[str, Any], reason: str, end: dict[str, Any]) -> Iterator[str]:
    names = {"id": end["id"], "model": end["model"], "object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return data_event({**names, "choices": [choice]})

    yield chunk({"role": "assistant", "content": None})
    for name in ("reasoning_content", "content"):
        for piece in _pieces(message.get(name) or ""):
            yield chunk({name: piece})
    for index, call in enumerate(message.get("tool_calls") or []):
        function = call["function"]
        head = {"name": function["name"], "arguments": ""}
        yield chunk(
            {
                "tool_calls": [
                    {"index": index, "id": call["id"], "type": "function", "function": head}
                ]
            }
        )
        for piece in _pieces(function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, reason)
    yield data_event({**end, "object": "chat.completion.chunk", "choices": []})
    yield "data: [DONE]\n\n"


def _pieces(text: str) -> list[str]:
    return [text[i : i + PIECE] for i in range(0, len(text), PIECE)]


def _message(body: dict[str, Any]) -> dict[str, Any]:
    last = body["messages"][-1]
    text = str(last.get("content"))
    shape = body.get("response_format") or {}
    if schema := shape.get("schema") or (shape.get("json_schema") or {}).get("schema"):
        return {"content": json.dumps(_instance(schema, schema, text), ensure_ascii=False)}
    if body.get("tools") and last["role"] != "tool" and body.get("tool_choice") != "none":
        function = body["tools"][0]["function"]
        schema = function.get("parameters") or {"type": "object"}
        arguments = json.dumps(_instance(schema, schema, text), ensure_ascii=False)
        call = {"name": function["name"], "arguments": arguments}
        return {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": call}]}
    return {"content": SENTENCE}


def _instance(schema: dict[str, Any], root: dict[str, Any], text: str) -> Any:
    """A value of `schema`, made of what `text` quotes and counts."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return _instance((root.get("$defs") or root["definitions"])[name], root, text)
    for fixed in ("const", "default"):
        if fixed in schema:
            return schema[fixed]
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return _instance(schema[union][0], root, text)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object")
    numbers = [int(number) for number in re.findall(r"\d+", text)] or [3]
    if kind == "object":
        fields = schema.get("properties") or {}
        return {name: _instance(field, root, text) for name, field in fields.items()}
    quoted = re.findall(r"'([^']+)'", text) or ["what was asked for"]
    values = {"string": quoted[0], "integer": numbers[-1], "number": numbers[-1], "boolean": True}
    return values.get(kind, [] if kind == "array" else None)
