"""OpenAI's own client works unchanged, and reaches pools through extra fields and headers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel
from servers import Servers
from support import Api
from test_api_keys import FLAGS, KEYS
from test_completions import LIGHT_TOOL

SYSTEM: Any = {"role": "system", "content": "You know everything about stones. " * 10}
USER: Any = {"role": "user", "content": "What is granite?"}
MODEL = "any"
TOOL_WANTED: Any = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Light, please."}],
    "tools": [LIGHT_TOOL],
    "tool_choice": "required",
    "max_tokens": 64,
    "temperature": 0,
}
RESPONSES_TOOL: Any = {"type": "function", **LIGHT_TOOL["function"], "strict": True}


class Stone(BaseModel):
    color: Literal["red", "grey"]
    hard: bool


@pytest.fixture
def openai_client(api: Api) -> openai.OpenAI:
    return client_of(api)


def client_of(api: Api, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=api.base_url + "/v1", api_key=key, max_retries=0)


def block(answer: Any) -> dict[str, Any]:
    """What the answer says about pool and session."""
    return answer.model_extra["opencoti"]


def test_models_are_listed(openai_client: openai.OpenAI) -> None:
    assert len(openai_client.models.list().data) == 1


def test_a_completion_has_choices_and_usage(openai_client: openai.OpenAI) -> None:
    answer = openai_client.completions.create(
        model=MODEL, prompt="The capital of France is", max_tokens=3, temperature=0
    )
    assert "Paris" in answer.choices[0].text
    assert answer.usage is not None and answer.usage.completion_tokens == 3


def test_a_streamed_chat_says_what_the_whole_one_says(openai_client: openai.OpenAI) -> None:
    request: Any = {"model": MODEL, "messages": [USER], "max_tokens": 8, "temperature": 0}
    whole = openai_client.chat.completions.create(**request)
    chunks = list(openai_client.chat.completions.create(**request, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"


def test_a_tool_is_called_whole_and_streamed(tool_api: Api) -> None:
    chats = client_of(tool_api).chat.completions
    whole = chats.create(**TOOL_WANTED).choices[0]
    with chats.stream(**TOOL_WANTED) as stream:
        streamed = stream.get_final_completion().choices[0]
    arguments = []
    for choice in (whole, streamed):
        (call,) = choice.message.tool_calls or []
        assert call.id and call.type == "function" and call.function.name == "set_light"
        assert choice.finish_reason == "tool_calls"
        arguments.append(json.loads(call.function.arguments))
    assert isinstance(arguments[0]["on"], bool)
    assert arguments[0] == arguments[1]


def test_a_chat_is_parsed_into_a_class(openai_client: openai.OpenAI) -> None:
    answer = openai_client.chat.completions.parse(
        model=MODEL, messages=[USER], response_format=Stone, max_tokens=64, temperature=0
    )
    assert isinstance(answer.choices[0].message.parsed, Stone)


def test_a_response_has_text_and_usage(openai_client: openai.OpenAI) -> None:
    request: Any = {"model": MODEL, "input": "What is granite?", "max_output_tokens": 8,
                    "temperature": 0}
    whole = openai_client.responses.create(**request)
    assert whole.status == "completed" and whole.output_text
    assert whole.usage is not None and whole.usage.output_tokens == 8
    events = list(openai_client.responses.create(**request, stream=True))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text
    assert events[0].type == "response.created"
    last = events[-1]
    assert last.type == "response.completed" and last.response.output_text == text


def test_a_response_calls_a_tool(tool_api: Api) -> None:
    answer = client_of(tool_api).responses.create(
        model=MODEL, input="Light, please.", tools=[RESPONSES_TOOL], tool_choice="required",
        max_output_tokens=64, temperature=0,
    )
    call = answer.output[-1]
    assert call.type == "function_call" and call.name == "set_light"
    assert isinstance(json.loads(call.arguments)["on"], bool)


def test_a_chat_from_a_pool_reports_cached_tokens(api: Api, openai_client: openai.OpenAI) -> None:
    pool = api.create_pool(messages=[SYSTEM])
    answer = openai_client.chat.completions.create(
        model=MODEL,
        messages=[SYSTEM, USER],
        max_tokens=8,
        extra_body={"pool_id": pool["pool_id"]},
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None and answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == pool["prefix_len"]
    assert block(answer)["pool_id"] == pool["pool_id"]


def test_a_streamed_chat_from_a_pool_by_header(api: Api, openai_client: openai.OpenAI) -> None:
    pool = api.create_pool(messages=[SYSTEM], name="stones")
    stream = openai_client.chat.completions.create(
        model=MODEL,
        messages=[SYSTEM, USER],
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers={"X-Polykv-Pool": "stones"},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text
    usage = chunks[-1].usage
    assert usage is not None and usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == pool["prefix_len"]
    assert block(chunks[-1])["cache_n"] == pool["prefix_len"]


def test_a_session_goes_on_from_turn_to_turn(openai_client: openai.OpenAI) -> None:
    turns: list[Any] = [USER]
    cached = []
    for _ in range(2):
        answer = openai_client.chat.completions.create(
            model=MODEL, messages=turns, max_tokens=4, extra_body={"session_id": "geologist"}
        )
        assert block(answer)["session_id"] == "geologist"
        cached.append(block(answer)["cache_n"])
        turns += [answer.choices[0].message.to_dict(), {"role": "user", "content": "And slate?"}]
    assert cached[0] == 0 and cached[1] > 0


def test_a_response_from_a_pool_shows_the_block(api: Api, openai_client: openai.OpenAI) -> None:
    pool = api.create_pool(messages=[SYSTEM])
    answer = openai_client.responses.create(
        model=MODEL, instructions=SYSTEM["content"], input="What is granite?",
        max_output_tokens=4, extra_body={"pool_id": pool["pool_id"]},
    )
    assert block(answer)["pool_id"] == pool["pool_id"]
    assert block(answer)["cache_n"] == pool["prefix_len"]


def test_errors_arrive_as_the_clients_exceptions(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="8192"):
        openai_client.completions.create(model=MODEL, prompt=[504] * 9000, max_tokens=1)
    with pytest.raises(openai.NotFoundError, match="File Not Found"):
        openai_client.files.list()
    with pytest.raises(openai.NotFoundError, match="nobody"):
        openai_client.completions.create(
            model=MODEL,
            prompt="Hi",
            extra_body={"pool_id": "nobody", "on_pool_miss": "error"},
        )


def test_a_wrong_key_is_an_authentication_error(servers: Servers, server_binary: Path) -> None:
    api = Api(servers.shared(server_binary, FLAGS + KEYS).base_url)
    with pytest.raises(openai.AuthenticationError):
        client_of(api, "wrong-key").models.list()
    assert client_of(api, "first-key").models.list().data
