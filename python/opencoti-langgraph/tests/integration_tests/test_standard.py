"""LangChain's integration tests against a real server with a model of 135 million parameters.

What that model is too small for is marked; everything else must pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_tests.integration_tests import ChatModelIntegrationTests

from opencoti_langgraph import OpencotiChatModel


@pytest.fixture(scope="class")
def real(server_url: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENCOTI_BASE_URL", server_url)
        yield


@pytest.mark.usefixtures("real")
class TestReal(ChatModelIntegrationTests):
    chat_model_class = OpencotiChatModel
    chat_model_params = {"temperature": 0, "max_tokens": 100}  # noqa: RUF012
    supports_model_override = False  # a server has one model, and says its own name
    supports_json_mode = True

    @pytest.mark.xfail(reason="the model calls no tool unless it must", strict=False)
    @pytest.mark.parametrize("model", [{}, {"output_version": "v1"}], indirect=True)
    def test_agent_loop(self, model: BaseChatModel) -> None:
        super().test_agent_loop(model)
