"""LangChain's messages as llama-server's chat routes take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, convert_to_openai_messages
from langchain_core.messages.utils import MessageLikeRepresentation


def to_wire(messages: Sequence[MessageLikeRepresentation]) -> list[dict[str, Any]]:
    return [_to_wire(message) for message in messages]


def _to_wire(message: MessageLikeRepresentation) -> dict[str, Any]:
    if isinstance(message, AIMessage) and not isinstance(message.content, str):
        # Blocks of reasoning and of calls have fields of their own on the wire.
        message = message.model_copy(update={"content": str(message.text)})
    wire = cast(dict[str, Any], convert_to_openai_messages(message, text_format="string"))
    if isinstance(message, AIMessage) and "reasoning_content" in message.additional_kwargs:
        wire["reasoning_content"] = message.additional_kwargs["reasoning_content"]
    return wire
