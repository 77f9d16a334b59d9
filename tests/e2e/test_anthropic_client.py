"""Anthropic's own client works unchanged, and reaches pools through extra fields and headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import pytest
from servers import Servers
from support import Api
from test_api_keys import FLAGS, KEYS

SYSTEM = "You know everything about stones. " * 10
USER: Any = {"role": "user", "content": "What is granite?"}
GREEDY = {"temperature": 0}  # the client has no argument for it
REQUEST: Any = {"model": "any", "messages": [USER], "max_tokens": 8, "extra_body": GREEDY}
LIGHT_TOOL: Any = {
    "name": "set_light",
    "description": "Turns the light on or off",
    "input_schema": {
        "type": "object",
        "properties": {"on": {"type": "boolean"}},
        "required": ["on"],
    },
}
TOOL_WANTED: Any = {
    "model": "any",
    "messages": [{"role": "user", "content": "Light, please."}],
    "tools": [LIGHT_TOOL],
    "tool_choice": {"type": "any"},
    "max_tokens": 64,
    "extra_body": GREEDY,
}


@pytest.fixture
def anthropic_client(api: Api) -> anthropic.Anthropic:
    return client_of(api)


def client_of(api: Api, key: str = "none") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=api.base_url, api_key=key, max_retries=0)


def text_of(message: Any) -> str:
    return "".join(part.text for part in message.content if part.type == "text")


def test_a_message_has_text_and_usage(anthropic_client: anthropic.Anthropic) -> None:
    message = anthropic_client.messages.create(**REQUEST)
    assert text_of(message)
    assert message.role == "assistant"
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 8


def test_a_streamed_message_says_what_the_whole_one_says(
    anthropic_client: anthropic.Anthropic,
) -> None:
    whole = anthropic_client.messages.create(**REQUEST)
    with anthropic_client.messages.stream(**REQUEST) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) > 1
    assert "".join(pieces) == text_of(final) == text_of(whole)
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == 8


def test_a_stop_sequence_ends_the_message(anthropic_client: anthropic.Anthropic) -> None:
    message = anthropic_client.messages.create(**{**REQUEST, "stop_sequences": ["a"]})
    assert message.stop_reason == "end_turn"  # llama-server's word for it
    assert message.stop_sequence == "a"


def test_a_tool_is_used_whole_and_streamed(tool_api: Api) -> None:
    client = client_of(tool_api)
    whole = client.messages.create(**TOOL_WANTED)
    with client.messages.stream(**TOOL_WANTED) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        use = message.content[-1]
        assert use.type == "tool_use" and use.name == "set_light" and use.id
        assert isinstance(use.input["on"], bool)
        assert message.stop_reason == "tool_use"


def test_a_tools_result_is_taken(tool_api: Api) -> None:
    use = {"type": "tool_use", "id": "call_1", "name": "set_light", "input": {"on": True}}
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": "done"}
    messages: Any = [
        *TOOL_WANTED["messages"],
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    message = client_of(tool_api).messages.create(**{**TOOL_WANTED, "messages": messages})
    assert message.content


def test_tokens_are_counted(anthropic_client: anthropic.Anthropic) -> None:
    counted = anthropic_client.messages.count_tokens(model="any", messages=[USER], system=SYSTEM)
    message = anthropic_client.messages.create(**REQUEST, system=SYSTEM)
    read = message.usage.cache_read_input_tokens or 0
    assert counted.input_tokens == message.usage.input_tokens + read


def test_a_message_from_a_pool_shows_the_block(
    api: Api, anthropic_client: anthropic.Anthropic
) -> None:
    pool = api.create_pool(messages=[{"role": "system", "content": SYSTEM}])
    attach = {"pool_id": pool["pool_id"], "session_id": "miner"}
    message = anthropic_client.messages.create(
        **{**REQUEST, "extra_body": attach}, system=SYSTEM
    )
    block = message.model_extra["opencoti"]
    assert (block["pool_id"], block["session_id"]) == (pool["pool_id"], "miner")
    assert block["cache_n"] == pool["prefix_len"] == message.usage.cache_read_input_tokens


def test_a_streamed_message_from_a_pool_by_header(
    api: Api, anthropic_client: anthropic.Anthropic
) -> None:
    pool = api.create_pool(messages=[{"role": "system", "content": SYSTEM}], name="stones")
    events = list(
        anthropic_client.messages.create(
            **REQUEST, system=SYSTEM, stream=True, extra_headers={"X-Polykv-Pool": "stones"}
        )
    )
    (delta,) = [event for event in events if event.type == "message_delta"]
    assert delta.model_extra["opencoti"]["pool_id"] == pool["pool_id"]
    assert events[-1].type == "message_stop"


def test_errors_arrive_as_the_clients_exceptions(
    servers: Servers, server_binary: Path, anthropic_client: anthropic.Anthropic
) -> None:
    with pytest.raises(anthropic.BadRequestError, match="8192"):
        anthropic_client.messages.create(
            **{**REQUEST, "messages": [{"role": "user", "content": "word " * 9000}]}
        )
    with pytest.raises(anthropic.NotFoundError, match="nobody"):
        miss = {"pool_id": "nobody", "on_pool_miss": "error"}
        anthropic_client.messages.create(**{**REQUEST, "extra_body": miss})
    guarded = Api(servers.shared(server_binary, FLAGS + KEYS).base_url)
    with pytest.raises(anthropic.AuthenticationError):
        client_of(guarded, "wrong-key").messages.create(**REQUEST)
    assert client_of(guarded, "first-key").messages.create(**REQUEST).content
