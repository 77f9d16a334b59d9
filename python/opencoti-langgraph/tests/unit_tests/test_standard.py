"""LangChain's own suites on the chat model: the unit tests, and the integration tests against a
scripted server, all of which it must pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langchain_tests.unit_tests import ChatModelUnitTests

from opencoti_langgraph import OpencotiChatModel
from tests.scripted_llama import ScriptedLlama
from tests.scripted_server import ScriptedServer


class TestUnit(ChatModelUnitTests):
    chat_model_class = OpencotiChatModel
    chat_model_params = {"model": "scripted"}  # noqa: RUF012

    @property
    def init_from_env_params(self) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
        environment = {"OPENCOTI_API_KEY": "secret", "OPENCOTI_BASE_URL": "http://host:1"}
        expected = {"api_key": "secret", "base_url": "http://host:1"}
        return environment, {"model": "scripted"}, expected


@pytest.fixture(scope="class")
def scripted() -> Iterator[None]:
    with ScriptedServer().running() as server, pytest.MonkeyPatch.context() as patch:
        ScriptedLlama(server)
        patch.setenv("OPENCOTI_BASE_URL", server.url)
        yield


@pytest.mark.usefixtures("scripted")
class TestScripted(ChatModelIntegrationTests):
    chat_model_class = OpencotiChatModel
    chat_model_params = {"model": "scripted"}  # noqa: RUF012
    supports_model_override = False  # a server has one model, and says its own name
    supports_json_mode = True
