"""What the chat model sends, and what it makes of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from opencoti_langgraph import OpencotiChatModel
from opencoti_langgraph.control import (
    ContextExceededError,
    OpencotiError,
    PoolSaturatedError,
    UnavailableError,
)
from opencoti_langgraph.forced_calls import ForcedCallReader
from tests.scripted_llama import CHAT, ScriptedLlama
from tests.scripted_server import Asked, Reply, ScriptedServer, data_event, problem

BLOCK = {"pool_id": 7000, "session_id": "s", "cache_n": 12, "session_tps": 9.5, "ctx_used": 30}


@tool
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


class City(BaseModel):
    name: str


@pytest.fixture
def llama(server: ScriptedServer) -> ScriptedLlama:
    return ScriptedLlama(server)


@pytest.fixture
def model(llama: ScriptedLlama) -> OpencotiChatModel:
    return OpencotiChatModel(base_url=llama.server.url)


def gathered(model: Any, text: str, **kwargs: Any) -> AIMessageChunk:
    chunks = list(model.stream(text, **kwargs))
    whole: AIMessageChunk = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


@pytest.mark.parametrize("streamed", [False, True])
def test_pool_and_session_travel_and_come_back(llama: ScriptedLlama, streamed: bool) -> None:
    llama.block = BLOCK
    url = llama.server.url
    model = OpencotiChatModel(base_url=url, pool_id="review", session_id="s", overcommit=True)
    answer = gathered(model, "Hi") if streamed else model.invoke("Hi")
    (body,) = llama.bodies
    assert (body["pool_id"], body["session_id"], body["overcommit"]) == ("review", "s", True)
    told = answer.response_metadata
    assert {name: told[name] for name in ("pool_id", "session_id", "session_tps", "cache_n")} == {
        "pool_id": 7000,
        "session_id": "s",
        "session_tps": 9.5,
        "cache_n": 12,
    }
    assert told.get("backpressure") is None
    assert told["opencoti"]["ctx_used"] == 30
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_token_details"]["cache_read"] == 12


def test_a_call_may_name_another_pool(llama: ScriptedLlama, model: OpencotiChatModel) -> None:
    model.invoke("Hi", pool_id="other", session_end=True, seed=4)
    model.bind(pool_id=8).invoke("Hi")
    first, second = llama.bodies
    assert (first["pool_id"], first["session_end"], first["seed"]) == ("other", True, 4)
    assert second["pool_id"] == 8


def test_nothing_is_sent_that_nobody_said(llama: ScriptedLlama, model: OpencotiChatModel) -> None:
    model.invoke("Hi")
    assert llama.bodies == [{"model": "default", "messages": [{"role": "user", "content": "Hi"}]}]


@pytest.mark.parametrize("streamed", [False, True])
def test_reasoning_is_kept_and_sent_back(
    llama: ScriptedLlama, model: OpencotiChatModel, streamed: bool
) -> None:
    llama.says = [{"reasoning_content": "Paris is a city.", "content": "Paris."}]
    answer = gathered(model, "Hi") if streamed else model.invoke("Hi")
    assert answer.text == "Paris."
    assert answer.additional_kwargs["reasoning_content"] == "Paris is a city."
    assert [block["type"] for block in answer.content_blocks] == ["reasoning", "text"]
    model.invoke([HumanMessage("Hi"), answer, HumanMessage("Sure?")])
    sent = llama.bodies[-1]["messages"][1]
    assert sent == {
        "role": "assistant",
        "content": "Paris.",
        "reasoning_content": "Paris is a city.",
    }


@pytest.mark.parametrize("choice", ["any", "required", "add", True])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_forced_call_is_a_schema_on_the_wire(
    llama: ScriptedLlama, model: OpencotiChatModel, choice: Any, streamed: bool
) -> None:
    bound = model.bind_tools([add], tool_choice=choice)
    answer = gathered(bound, "Add 3") if streamed else bound.invoke("Add 3")
    (body,) = llama.bodies
    schema = body["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["name"] == {"const": "add"}
    assert body["tool_choice"] == "none"
    assert body["tools"][0]["function"]["name"] == "add"
    assert answer.text == ""
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 3, "b": 3})
    assert call["id"]


def test_a_forced_call_may_be_left_to_the_server(llama: ScriptedLlama) -> None:
    model = OpencotiChatModel(base_url=llama.server.url, forced_tool_choice="server")
    answer = model.bind_tools([add], tool_choice="any").invoke("Add 3")
    assert llama.bodies[0]["tool_choice"] == "required"
    assert "response_format" not in llama.bodies[0]
    assert answer.tool_calls


def test_only_tools_that_are_there_can_be_chosen(model: OpencotiChatModel) -> None:
    with pytest.raises(ValueError, match="'sub'"):
        model.bind_tools([add], tool_choice="sub").invoke("Add 3")


@pytest.mark.parametrize("streamed", [False, True])
def test_calls_that_are_not_forced(
    llama: ScriptedLlama, model: OpencotiChatModel, streamed: bool
) -> None:
    bound = model.bind_tools([add])
    answer = gathered(bound, "Add 4") if streamed else bound.invoke("Add 4")
    (call,) = answer.tool_calls
    assert call["args"] == {"a": 4, "b": 4}
    result = ToolMessage("8", tool_call_id=call["id"])
    bound.invoke([HumanMessage("Add 4"), answer, result])
    roles = [message["role"] for message in llama.bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "tool"]


def test_arguments_that_do_not_parse_are_invalid_calls(
    llama: ScriptedLlama, model: OpencotiChatModel
) -> None:
    function = {"name": "add", "arguments": '{"a": 1'}
    llama.says = [{"content": None, "tool_calls": [{"id": "c", "function": function}]}]
    answer = model.invoke("Hi")
    assert isinstance(answer, AIMessage)
    assert not answer.tool_calls
    assert answer.invalid_tool_calls[0]["args"] == '{"a": 1'


CALL = '{"name": "say", "arguments": {"text": "a } b", "deep": {"n": 1}} }\n'


@pytest.mark.parametrize("size", range(1, 12))
def test_a_forced_call_is_read_whatever_its_pieces(size: int) -> None:
    reader = ForcedCallReader()
    pieces = [CALL[i : i + size] for i in range(0, len(CALL), size)]
    chunks = [chunk for piece in pieces for chunk in reader.take(piece)]
    assert [chunk["name"] for chunk in chunks if chunk["name"]] == ["say"]
    assert "".join(chunk["args"] or "" for chunk in chunks) == '{"text": "a } b", "deep": {"n": 1}}'


def test_a_forced_call_that_was_cut_early_is_text(
    llama: ScriptedLlama, model: OpencotiChatModel
) -> None:
    bound = model.bind_tools([add], tool_choice="any")
    llama.says = [{"content": '{"name": "a'}, {"content": '{"name": "a'}]
    assert bound.invoke("Hi").text == '{"name": "a'
    assert gathered(bound, "Hi").text == '{"name": "a'


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output_beside_the_raw_answer(
    llama: ScriptedLlama, model: OpencotiChatModel, method: Any
) -> None:
    bound = model.with_structured_output(City, method=method, include_raw=True)
    answer: Any = bound.invoke("Name 'Paris'")
    assert answer["parsed"] == City(name="Paris")
    assert answer["parsing_error"] is None
    llama.says = [{"content": "{"}]
    broken: Any = asyncio.run(bound.ainvoke("Name 'Paris'"))
    assert broken["parsed"] is None
    assert broken["raw"].text == "{"


@pytest.mark.parametrize("streamed", [False, True])
def test_refusals_are_errors_of_their_kind(
    server: ScriptedServer, model: OpencotiChatModel, streamed: bool
) -> None:
    server.on(CHAT, problem(400, "exceed_context_size_error", n_prompt_tokens=9, n_ctx=8))
    with pytest.raises(ContextExceededError):
        gathered(model, "Hi") if streamed else model.invoke("Hi")


SATURATED = problem(429, "pool_saturated", retry_after_ms=20, reason="below floor")


@pytest.mark.parametrize("mode", ["invoke", "stream", "ainvoke", "astream"])
def test_a_saturated_pool_is_told_or_waited_for(
    llama: ScriptedLlama, model: OpencotiChatModel, mode: str
) -> None:
    replies = iter([SATURATED, SATURATED, SATURATED])
    llama.server.routes[CHAT] = lambda asked: next(replies, None) or llama.answer(asked)

    async def aread(model: OpencotiChatModel) -> list[Any]:
        if mode == "ainvoke":
            return [await model.ainvoke("Hi")]
        return [chunk async for chunk in model.astream("Hi")]

    def read(model: OpencotiChatModel) -> list[Any]:
        if mode.startswith("a"):
            return asyncio.run(aread(model))
        return [model.invoke("Hi")] if mode == "invoke" else list(model.stream("Hi"))

    with pytest.raises(PoolSaturatedError) as caught:
        read(model)
    assert caught.value.retry_after == 0.02
    assert len(llama.bodies) == 1
    assert read(model.model_copy(update={"saturation_wait": 10.0}))
    assert len(llama.bodies) == 4


def test_a_server_that_is_not_there_yet_is_tried_again(
    llama: ScriptedLlama, model: OpencotiChatModel
) -> None:
    loading = Reply({"error": {"message": "loading"}}, 503, {"Retry-After": "0"})
    replies = iter([loading, loading])
    llama.server.routes[CHAT] = lambda asked: next(replies, None) or llama.answer(asked)
    once = model.model_copy(update={"max_retries": 1})
    with pytest.raises(UnavailableError):
        once.model_copy(update={"max_retries": 0}).invoke("Hi")
    assert once.invoke("Hi").text


def test_an_error_within_a_stream_is_raised(
    server: ScriptedServer, model: OpencotiChatModel
) -> None:
    delta = {"choices": [{"delta": {"content": "Al"}}]}
    failure = {"error": {"code": 500, "message": "out of luck", "type": "server_error"}}
    server.on(CHAT, Reply(events=[data_event(delta), data_event(failure)]))
    stream = model.stream("Hi")
    assert next(stream).text == "Al"
    with pytest.raises(OpencotiError, match="out of luck"):
        list(stream)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_who_stops_reading_stops_the_server(
    server: ScriptedServer, model: OpencotiChatModel, mode: str
) -> None:
    def words() -> Iterator[str]:
        while True:
            yield data_event({"choices": [{"delta": {"content": "on and " * 500}}]})

    def answer(_: Asked) -> Reply:
        return Reply(events=words())

    async def many() -> None:
        async for _ in model.astream("Hi"):
            pass

    async def cancelled() -> None:
        task = asyncio.create_task(many())
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    server.routes[CHAT] = answer
    if mode == "sync":
        stream = model.stream("Hi")
        next(stream)
        stream.close()  # type: ignore[attr-defined]
    else:
        asyncio.run(cancelled())
    assert server.dropped.wait(5)


def test_tokens_are_counted_by_the_server(server: ScriptedServer, model: OpencotiChatModel) -> None:
    server.on("POST /tokenize", {"tokens": [1, 2, 3]})
    server.on("POST /v1/chat/completions/input_tokens", {"input_tokens": 12})
    assert model.get_num_tokens("a b c") == 3
    assert model.get_num_tokens_from_messages([HumanMessage("Hi")], tools=[add]) == 12
    assert server.asked[-1].body["tools"][0]["function"]["name"] == "add"


def test_a_model_of_a_server_knows_its_context(server: ScriptedServer) -> None:
    server.on("GET /props", {"default_generation_settings": {"n_ctx": 8192}, "model_alias": "smol"})
    model = OpencotiChatModel.from_server(server.url, pool_id=7)
    assert model.profile is not None
    assert (model.model, model.pool_id, model.profile["max_input_tokens"]) == ("smol", 7, 8192)
