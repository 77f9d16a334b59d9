"""Completion routes without pools: streaming, stop strings, schemas, tools, probabilities, limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from harness.client import Completion
from support import Api, greedy

PROMPT = "Once upon a time, in a small village,"
MESSAGES = [{"role": "user", "content": "Tell me about the moon."}]

SCHEMA = {
    "type": "object",
    "properties": {
        "color": {"enum": ["red", "green"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "ok": {"type": "boolean"},
    },
    "required": ["color", "count", "ok"],
}
LIGHT_TOOL = {
    "type": "function",
    "function": {
        "name": "set_light",
        "description": "Turns the light on or off",
        "parameters": {
            "type": "object",
            "properties": {"on": {"type": "boolean"}},
            "required": ["on"],
        },
    },
}


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": MESSAGES, "temperature": 0, "max_tokens": 12, **fields}


def assert_matches_schema(text: str) -> None:
    value = json.loads(text)
    assert set(value) == {"color", "count", "ok"}
    assert value["color"] in ("red", "green")
    assert 0 <= value["count"] <= 99
    assert isinstance(value["ok"], bool)


def test_completion_stops_at_n_predict_and_counts_tokens(api: Api) -> None:
    body = api.complete(PROMPT, n_predict=7, ignore_eos=True, return_tokens=True)
    assert body["stop_type"] == "limit"
    assert body["truncated"] is False
    assert body["tokens_predicted"] == body["timings"]["predicted_n"] == 7
    assert body["tokens_evaluated"] == len(api.tokens(PROMPT))
    assert api.text(body["tokens"]) == body["content"]


def test_streamed_completion_gives_the_same_text_token_by_token(api: Api) -> None:
    whole = api.complete(PROMPT, n_predict=12)
    stream = api.stream(PROMPT, n_predict=12)
    assert stream.text == whole["content"]
    assert [chunk["stop"] for chunk in stream.chunks] == [False] * 12 + [True]
    assert stream.last["tokens_predicted"] == 12
    assert stream.headers["content-type"].startswith("text/event-stream")


def test_openai_completion_has_text_usage_and_finish_reason(api: Api) -> None:
    body = api.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 6, "temperature": 0})
    assert body["object"] == "text_completion"
    assert body["choices"][0]["text"] == api.complete(PROMPT, n_predict=6)["content"]
    assert body["choices"][0]["finish_reason"] == "length"
    usage = body["usage"]
    assert usage["completion_tokens"] == 6
    assert usage["prompt_tokens"] == len(api.tokens(PROMPT))
    assert usage["total_tokens"] == usage["prompt_tokens"] + 6


def test_chat_streamed_and_whole_agree_and_the_stream_ends_with_usage_and_done(api: Api) -> None:
    whole = api.post("/v1/chat/completions", chat())
    stream = api.follow("/v1/chat/completions", chat(stream_options={"include_usage": True}))
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": stream.text}
    assert stream.chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert stream.finish_reason == whole["choices"][0]["finish_reason"] == "length"
    assert stream.done_seen
    assert stream.last["choices"] == []
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert stream.last["usage"][name] == whole["usage"][name]


def test_without_include_usage_a_chat_stream_has_no_usage(api: Api) -> None:
    stream = api.follow("/v1/chat/completions", chat())
    assert stream.done_seen
    assert not any("usage" in chunk for chunk in stream.chunks)


def stop_across_tokens(api: Api) -> tuple[str, str]:
    """(greedy text, a string in it that begins inside one token and ends inside the next)."""
    body = api.complete(PROMPT, n_predict=24, ignore_eos=True, return_tokens=True)
    pieces = [api.text([token]) for token in body["tokens"]]
    for left, right in zip(pieces[6:], pieces[7:], strict=False):
        stop = left[-2:] + right[:2]
        if len(left) > 3 and len(right) > 3 and body["content"].count(stop) == 1:
            return body["content"], stop
    raise AssertionError(f"no place for a stop string in {pieces}")


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_across_two_tokens_ends_the_text_before_it(api: Api, stream: bool) -> None:
    text, stop = stop_across_tokens(api)
    fields = {"n_predict": 24, "ignore_eos": True, "stop": [stop]}
    if stream:
        result: Completion = api.stream(PROMPT, **fields)
        content, final = result.text, result.last
    else:
        final = api.complete(PROMPT, **fields)
        content = final["content"]
    assert content == text[: text.index(stop)]
    assert final["stop_type"] == "word"
    assert final["stopping_word"] == stop


def test_a_stop_string_ends_a_chat_with_finish_reason_stop(api: Api) -> None:
    text = api.post("/v1/chat/completions", chat())["choices"][0]["message"]["content"]
    stop = text.split()[3]
    choice = api.post("/v1/chat/completions", chat(stop=stop))["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == text[: text.index(stop)]


def test_characters_of_several_tokens_are_never_cut_in_a_stream(api: Api) -> None:
    prompt = "🎉🦊🎉🦊🎉🦊🎉🦊🎉🦊🎉🦊🎉🦊🎉🦊"
    whole = api.complete(prompt, n_predict=16, ignore_eos=True)["content"]
    stream = api.stream(prompt, n_predict=16, ignore_eos=True)
    assert "🎉" in whole
    assert stream.text == whole.rstrip("\ufffd")
    assert "\ufffd" not in stream.text


def test_json_schema_on_completion_gives_json_of_that_schema(api: Api) -> None:
    body = api.complete("A JSON object:", n_predict=128, json_schema=SCHEMA)
    assert_matches_schema(body["content"])


def test_response_format_on_chat_gives_json_of_that_schema(api: Api) -> None:
    wanted = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
    body = api.post("/v1/chat/completions", chat(max_tokens=128, response_format=wanted))
    assert_matches_schema(body["choices"][0]["message"]["content"])


def test_a_grammar_restricts_the_text(api: Api) -> None:
    body = api.complete("Yes or no?", n_predict=8, grammar='root ::= "maybe" | "perhaps"')
    assert body["content"] in ("maybe", "perhaps")
    assert body["stop_type"] == "eos"


def test_a_request_with_tools_is_answered(api: Api) -> None:
    body = api.post("/v1/chat/completions", chat(tools=[LIGHT_TOOL]))
    message = body["choices"][0]["message"]
    assert message["role"] == "assistant"
    assert message.get("content") or message.get("tool_calls")


def test_n_probs_gives_the_likeliest_tokens_of_every_step(api: Api) -> None:
    body = api.complete(PROMPT, n_predict=3, n_probs=4, return_tokens=True)
    steps = body["completion_probabilities"]
    assert [step["id"] for step in steps] == body["tokens"]
    for step in steps:
        logprobs = [top["logprob"] for top in step["top_logprobs"]]
        assert len(logprobs) == 4
        assert logprobs == sorted(logprobs, reverse=True)
        assert step["top_logprobs"][0]["id"] == step["id"]
        assert step["logprob"] == logprobs[0] <= 0


def test_chat_logprobs_have_openai_shape(api: Api) -> None:
    body = api.post("/v1/chat/completions", chat(max_tokens=3, logprobs=True, top_logprobs=2))
    choice = body["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(step["token"] for step in content) == choice["message"]["content"]
    assert all(len(step["top_logprobs"]) == 2 for step in content)
    assert all(bytes(step["bytes"]).decode() == step["token"] for step in content)


def test_several_prompts_give_one_result_each_in_order(api: Api) -> None:
    prompts = [PROMPT, api.tokens("The capital of France is"), "2, 4, 6, 8,"]
    results = api.complete(prompts, n_predict=4)
    assert [result["index"] for result in results] == [0, 1, 2]
    assert " Paris" in results[1]["content"]
    assert [result["tokens_predicted"] for result in results] == [4, 4, 4]


def test_more_prompts_than_slots_are_all_answered(api: Api) -> None:
    results = api.complete([f"{i}, {i + 1}, {i + 2}," for i in range(9)], n_predict=3)
    assert [result["index"] for result in results] == list(range(9))
    assert all(result["tokens_predicted"] == 3 for result in results)


def test_n_choices_share_one_prompt(api: Api) -> None:
    body = api.post("/v1/chat/completions", chat(n=3, temperature=1.5, seed=7, max_tokens=8))
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in body["choices"]}) > 1


def test_the_same_seed_gives_the_same_text(api: Api) -> None:
    fields = {"prompt": PROMPT, "n_predict": 16, "temperature": 1.2, "cache_prompt": False}
    texts = [api.post("/completion", {**fields, "seed": seed})["content"] for seed in (5, 5, 6)]
    assert texts[0] == texts[1] != texts[2]


def test_logit_bias_can_forbid_a_token(api: Api) -> None:
    paris = api.complete("The capital of France is", n_predict=1, return_tokens=True)["tokens"][0]
    prompt = "The capital of France is"
    other = api.complete(prompt, n_predict=1, return_tokens=True, logit_bias=[[paris, False]])
    assert other["tokens"][0] != paris


def test_response_fields_restrict_the_body(api: Api) -> None:
    fields = ["content", "generation_settings/n_predict"]
    body = api.complete(PROMPT, n_predict=2, response_fields=fields)
    assert set(body) == set(fields)


def test_pings_come_while_a_long_prompt_is_evaluated(api: Api, document: str) -> None:
    prompt = api.tokens(document)[:2000]
    body = greedy(prompt, 1, stream=True, sse_ping_interval=1, cache_prompt=False)
    with api.open("/completion", body) as exchange:
        lines = list(exchange.lines())
    first_data = next(i for i, line in enumerate(lines) if line.startswith("data:"))
    assert any(line.startswith(":") for line in lines[:first_data])


def test_a_plain_request_gets_no_polykv_fields(api: Api) -> None:
    reply = api.send("POST", "/completion", greedy(PROMPT, 2))
    assert "opencoti" not in reply.json
    assert not {"x-pool-id", "x-cached-prefix-tokens", "x-session-tps"} & set(reply.headers)
