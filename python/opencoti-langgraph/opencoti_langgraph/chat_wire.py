"""What OpencotiChatModel sends and what it makes of the answers, without input and output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, InvalidToolCall, ToolCall
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.messages.tool import ToolCallChunk, tool_call_chunk
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from opencoti_langgraph.control.errors import error_of
from opencoti_langgraph.forced_calls import ForcedCallReader, call_schema

PROVIDER = "opencoti"
ANY_TOOL = ("any", "required", True)


def force_call(body: dict[str, Any], tool_choice: Any) -> None:
    """Makes `body` leave no answer but a call of the tool that is chosen, or of any."""
    tools = [tool for tool in body["tools"] if tool_choice in (*ANY_TOOL, tool["function"]["name"])]
    if not tools:
        raise ValueError(f"there is no tool {tool_choice!r} to choose")
    schema = {"name": "call", "schema": call_schema(tools), "strict": True}
    body["response_format"] = {"type": "json_schema", "json_schema": schema}
    body["tool_choice"] = "none"  # the tools are still shown to the model


def read_answer(answer: dict[str, Any], *, forced: bool) -> ChatResult:
    """The result that the body of a chat completion holds."""
    choice = answer["choices"][0]
    message = choice["message"]
    content = message.get("content") or ""
    calls, invalid = _read_calls(message.get("tool_calls") or [])
    if forced:
        content, calls, invalid = _read_forced(content)
    result = AIMessage(
        content=content,
        additional_kwargs=_reasoning(message),
        tool_calls=calls,
        invalid_tool_calls=invalid,
        usage_metadata=_usage(answer.get("usage")),
        response_metadata={
            **_names(answer),
            "finish_reason": choice.get("finish_reason"),
            **_facts(answer),
        },
        id=answer.get("id"),
    )
    return ChatResult(generations=[ChatGeneration(message=result)])


def _read_calls(
    raw_calls: Sequence[dict[str, Any]],
) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for raw in raw_calls:
        try:
            parsed = parse_tool_call(raw, return_id=True)
        except OutputParserException as error:
            invalid.append(make_invalid_tool_call(raw, str(error)))
            continue
        if parsed is not None:
            calls.append(ToolCall(name=parsed["name"], args=parsed["args"], id=parsed["id"]))
    return calls, invalid


def _read_forced(text: str) -> tuple[str, list[ToolCall], list[InvalidToolCall]]:
    reader = ForcedCallReader()
    chunks = reader.take(text)
    if not chunks:
        return text, [], []
    arguments = "".join(chunk["args"] or "" for chunk in chunks)
    function = {"name": chunks[0]["name"], "arguments": arguments}
    return "", *_read_calls([{"id": reader.id, "function": function}])


def _reasoning(message: dict[str, Any]) -> dict[str, Any]:
    reasoning = message.get("reasoning_content")
    return {"reasoning_content": reasoning} if reasoning else {}


def _names(answer: dict[str, Any]) -> dict[str, Any]:
    return {"model_name": answer.get("model", ""), "model_provider": PROVIDER}


def _facts(answer: dict[str, Any]) -> dict[str, Any]:
    """What the server says about pool and session; `opencoti` is all of it."""
    block = answer.get("opencoti") or {}
    facts = {
        name: block.get(name)
        for name in ("pool_id", "session_id", "session_tps", "cache_n", "backpressure")
    }
    if facts["cache_n"] is None:
        facts["cache_n"] = (answer.get("timings") or {}).get("cache_n")
    return {**facts, "opencoti": block} if block else facts


def _usage(usage: dict[str, Any] | None) -> UsageMetadata | None:
    if not usage:
        return None
    read = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    reasoned = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
    metadata = UsageMetadata(
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
        total_tokens=usage["total_tokens"],
    )
    if read is not None:
        metadata["input_token_details"] = InputTokenDetails(cache_read=read)
    if reasoned is not None:
        metadata["output_token_details"] = OutputTokenDetails(reasoning=reasoned)
    return metadata


class StreamReader:
    """Makes chunks of the events of one streamed chat completion."""

    def __init__(self, *, forced: bool) -> None:
        self._forced = ForcedCallReader() if forced else None

    def take(self, data: str) -> list[ChatGenerationChunk]:
        """The chunks of one event's data; raises what the server says has gone wrong."""
        if data == "[DONE]":
            return []
        event = json.loads(data)
        if "error" in event:
            status = event["error"].get("code", 500)
            raise error_of(status if isinstance(status, int) else 500, event, {})
        chunks = [
            chunk for choice in event.get("choices", []) for chunk in self._read(event, choice)
        ]
        if event.get("usage"):
            chunks.append(_chunk(event, usage=_usage(event["usage"]), metadata=_facts(event)))
        return chunks

    def _read(self, event: dict[str, Any], choice: dict[str, Any]) -> list[ChatGenerationChunk]:
        delta = choice.get("delta") or {}
        content = delta.get("content") or ""
        calls = [_call_chunk(call) for call in delta.get("tool_calls") or []]
        if self._forced:
            calls = self._forced.take(content)
            content = ""
        chunks = []
        if reason := choice.get("finish_reason"):
            content += self._forced.rest() if self._forced else ""
            chunks.append(_chunk(event, metadata={**_names(event), "finish_reason": reason}))
        if content or calls or delta.get("reasoning_content"):
            chunks.insert(0, _chunk(event, content, calls, _reasoning(delta)))
        return chunks


def _call_chunk(call: dict[str, Any]) -> ToolCallChunk:
    function = call.get("function") or {}
    return tool_call_chunk(
        name=function.get("name"),
        args=function.get("arguments"),
        id=call.get("id"),
        index=call.get("index"),
    )


def _chunk(
    event: dict[str, Any],
    content: str = "",
    calls: Sequence[ToolCallChunk] = (),
    extra: dict[str, Any] | None = None,
    *,
    usage: UsageMetadata | None = None,
    metadata: dict[str, Any] | None = None,
) -> ChatGenerationChunk:
    message = AIMessageChunk(
        content=content,
        tool_call_chunks=list(calls),
        additional_kwargs=extra or {},
        usage_metadata=usage,
        response_metadata=metadata or {},
        id=event.get("id"),
    )
    return ChatGenerationChunk(message=message)
