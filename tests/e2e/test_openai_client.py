"""OpenAI's own client works unchanged, and reaches pools through extra fields and headers."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from support import Api

SYSTEM: Any = {"role": "system", "content": "You know everything about stones. " * 10}
USER: Any = {"role": "user", "content": "What is granite?"}
MODEL = "any"


@pytest.fixture
def openai_client(api: Api) -> openai.OpenAI:
    return openai.OpenAI(base_url=api.base_url + "/v1", api_key="none", max_retries=0)


def test_models_are_listed(openai_client: openai.OpenAI) -> None:
    assert len(openai_client.models.list().data) == 1


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


def test_a_completion_has_choices_and_usage(openai_client: openai.OpenAI) -> None:
    answer = openai_client.completions.create(
        model=MODEL, prompt="The capital of France is", max_tokens=3, temperature=0
    )
    assert "Paris" in answer.choices[0].text
    assert answer.usage is not None and answer.usage.completion_tokens == 3


def test_errors_arrive_as_the_clients_exceptions(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="8192"):
        openai_client.completions.create(model=MODEL, prompt=[504] * 9000, max_tokens=1)
    with pytest.raises(openai.NotFoundError):
        openai_client.completions.create(
            model=MODEL,
            prompt="Hi",
            extra_body={"pool_id": "nobody", "on_pool_miss": "error"},
        )
