"""A chat model on a PolyKV server, whose requests attach to pools and belong to sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import Any, Literal, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import (
    BaseChatModel,
    LangSmithParams,
    LanguageModelInput,
    ModelProfile,
)
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.base import BaseOutputParser
from langchain_core.output_parsers.openai_tools import (
    JsonOutputKeyToolsParser,
    PydanticToolsParser,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import (
    Runnable,
    RunnableMap,
    RunnablePassthrough,
    ensure_config,
)
from langchain_core.tools import BaseTool
from langchain_core.utils import from_env, secret_from_env
from langchain_core.utils.function_calling import (
    convert_to_json_schema,
    convert_to_openai_tool,
)
from langchain_core.utils.pydantic import is_basemodel_subclass
from pydantic import BaseModel, Field, PrivateAttr, SecretStr

from opencoti_langgraph.chat_wire import PROVIDER, StreamReader, force_call, read_answer
from opencoti_langgraph.control.client import DEFAULT_URL, ControlClient
from opencoti_langgraph.control.patience import Patience, patiently
from opencoti_langgraph.control.steps import Request, Steps
from opencoti_langgraph.control.wire import PoolRef
from opencoti_langgraph.messages import to_wire
from opencoti_langgraph.session_ids import SessionsInUse, session_id_of

CHAT_ROUTE = "/v1/chat/completions"

# Fields of the model that requests carry under the same name.
REQUEST_FIELDS = (
    "model",
    "temperature",
    "top_p",
    "max_tokens",
    "seed",
    "pool_id",
    "session_id",
    "session_end",
    "overcommit",
    "on_pool_miss",
)

StructuredMethod = Literal["json_schema", "function_calling", "json_mode"]


class OpencotiChatModel(BaseChatModel):
    """Chats with the model of a PolyKV server.

        model = OpencotiChatModel(pool_id="review", max_tokens=200)
        model.invoke([system, document, question])

    Whatever the chat route takes can also be given per call: `model.invoke(messages,
    pool_id="other", seed=1)`, or with `bind`. An answer's `response_metadata` tells `pool_id`,
    `session_id`, `session_tps`, `cache_n` and `backpressure`. Raises OpencotiError.
    """

    base_url: str = Field(default_factory=from_env("OPENCOTI_BASE_URL", default=DEFAULT_URL))
    api_key: SecretStr | None = Field(
        default_factory=secret_from_env("OPENCOTI_API_KEY", default=None)
    )
    model: str = "default"
    """A name for traces; the server has one model, whose name the answers tell."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: list[str] | None = None
    streaming: bool = False
    timeout: float | None = None
    """Seconds between two bytes of an answer. None: as long as the server works on it."""
    max_retries: int = 2
    """Tries after a failed connection or a 503."""
    saturation_wait: float = 0.0
    """Seconds to wait, as the server's Retry-After says, before PoolSaturatedError is raised."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Whatever else the requests carry."""

    pool_id: PoolRef | None = None
    session_id: str | None = None
    """None in a LangGraph run: derived from its thread and namespace, so that each loop has one."""
    derive_session: bool = True
    session_end: bool | None = None
    """True: the session is forgotten after the answer."""
    overcommit: bool | None = None
    """True: start past the floor of the pool's policy."""
    on_pool_miss: Literal["prefill", "error"] | None = None
    forced_tool_choice: Literal["json_schema", "server"] = "json_schema"
    """How a call is forced: by a grammar of calls, which any chat template can follow, or as the
    server does it for the template."""

    _sessions: SessionsInUse = PrivateAttr(default_factory=SessionsInUse)

    @classmethod
    def from_server(cls, base_url: str = DEFAULT_URL, **fields: Any) -> OpencotiChatModel:
        """A model that knows what the server tells about itself: its name and its context."""
        model = cls(base_url=base_url, **fields)
        props = model.client.props()
        n_ctx = props["default_generation_settings"]["n_ctx"]
        profile = cast(ModelProfile, {**(model.profile or {}), "max_input_tokens": n_ctx})
        name = fields.get("model") or props.get("model_alias") or model.model
        return model.model_copy(update={"profile": profile, "model": name})

    @property
    def client(self) -> ControlClient:
        """The control client of the model's server."""
        key = self.api_key.get_secret_value() if self.api_key else None
        return ControlClient(self.base_url, api_key=key)

    @property
    def _llm_type(self) -> str:
        return PROVIDER

    @property
    def _identifying_params(self) -> dict[str, Any]:
        names = ("base_url", *REQUEST_FIELDS)
        return {name: getattr(self, name) for name in names}

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop or self.stop, **kwargs)
        params["ls_provider"] = PROVIDER
        return params

    def _resolve_model_profile(self) -> ModelProfile:
        return {
            "tool_calling": True,
            "tool_choice": True,
            "tool_call_streaming": True,
            "structured_output": True,
            "text_inputs": True,
            "text_outputs": True,
        }

    def get_token_ids(self, text: str) -> list[int]:
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return self.client.tokenize(text)

    def get_num_tokens_from_messages(
        self,
        messages: list[BaseMessage],
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool] | None = None,
    ) -> int:
        """How long the prompt of these messages is, template included."""
        return self.client.count_tokens(messages, tools=tools or ())

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with self._asking(messages, stop, kwargs) as (steps, forced):
            return read_answer(self.client.run(steps), forced=forced)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with self._asking(messages, stop, kwargs) as (steps, forced):
            return read_answer(await self.client.arun(steps), forced=forced)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with (
            self._asking(messages, stop, kwargs, stream=True) as (steps, forced),
            self.client.stream(steps) as events,
        ):
            reader = StreamReader(forced=forced)
            for event in events:
                for chunk in reader.take(event.data):
                    if run_manager:
                        run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                    yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        with self._asking(messages, stop, kwargs, stream=True) as (steps, forced):
            reader = StreamReader(forced=forced)
            async with self.client.astream(steps) as events:
                async for event in events:
                    for chunk in reader.take(event.data):
                        if run_manager:
                            await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                        yield chunk

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | bool | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with `tools`. `tool_choice` "any" forces a call, a tool's name one of it."""
        wire = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
        if tool_choice:
            kwargs["tool_choice"] = tool_choice
        return cast(Runnable[LanguageModelInput, AIMessage], self.bind(tools=wire, **kwargs))

    def with_structured_output(
        self,
        schema: dict[str, Any] | type,
        *,
        include_raw: bool = False,
        method: StructuredMethod = "json_schema",
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, dict[str, Any] | BaseModel]:
        """The model with answers of `schema` only, parsed.

        `method` "json_schema" and "json_mode" let the server's grammar see to it,
        "function_calling" makes it a forced call.
        """
        shape = {"kwargs": {"method": method, "strict": strict}, "schema": schema}
        model: Runnable[LanguageModelInput, AIMessage]
        if method == "function_calling":
            model = self.bind_tools(
                [schema],
                tool_choice="any",
                strict=strict,
                ls_structured_output_format=shape,
                **kwargs,
            )
        else:
            bound = self.bind(
                response_format=_response_format(schema, method, strict),
                ls_structured_output_format=shape,
                **kwargs,
            )
            model = cast(Runnable[LanguageModelInput, AIMessage], bound)
        parser = _parser_of(schema, method)
        if not include_raw:
            return cast(Runnable[LanguageModelInput, dict[str, Any] | BaseModel], model | parser)
        return RunnableMap(raw=model) | _parsed_beside_raw(parser)

    @contextmanager
    def _asking(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        kwargs: dict[str, Any],
        *,
        stream: bool = False,
    ) -> Iterator[tuple[Steps[Any], bool]]:
        """What asks the server, and whether the answer will be a forced call in JSON."""
        derives = self.derive_session and self.session_id is None
        derived = session_id_of(ensure_config().get("metadata")) if derives else None
        with self._sessions.lend(derived) as session:
            body = self._body({"session_id": session, "stop": self.stop}, stop, kwargs)
            choice = body.pop("tool_choice", None)
            forced = _is_forced(choice, body) and self.forced_tool_choice == "json_schema"
            if forced:
                force_call(body, choice)
            elif choice is not None:
                body["tool_choice"] = "required" if _is_forced(choice, body) else choice
            body["messages"] = to_wire(messages)
            if stream:
                body |= {"stream": True, "stream_options": {"include_usage": True}}
            request = Request("POST", CHAT_ROUTE, body=body, timeout_s=self.timeout)
            yield patiently(request, Patience(self.max_retries, self.saturation_wait)), forced

    def _body(
        self, defaults: dict[str, Any], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """The options of a call: its own, else the model's, else `defaults`."""
        own = {name: getattr(self, name) for name in REQUEST_FIELDS}
        body = {**defaults, **_said(own), **self.extra_body, **_said({"stop": stop}), **kwargs}
        return _said(body)


def _said(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _is_forced(choice: Any, body: dict[str, Any]) -> bool:
    return bool(body.get("tools")) and choice not in (None, False, "auto", "none")


def _response_format(
    schema: dict[str, Any] | type, method: StructuredMethod, strict: bool | None
) -> dict[str, Any]:
    json_schema = convert_to_json_schema(schema, strict=strict)
    if method == "json_mode":
        return {"type": "json_object", "schema": json_schema}
    name = json_schema.get("title", "answer")
    return {"type": "json_schema", "json_schema": {"name": name, "schema": json_schema}}


def _parser_of(schema: dict[str, Any] | type, method: StructuredMethod) -> BaseOutputParser[Any]:
    model = schema if isinstance(schema, type) and is_basemodel_subclass(schema) else None
    if method == "function_calling":
        if model:
            return PydanticToolsParser(tools=[model], first_tool_only=True)
        name = convert_to_openai_tool(schema)["function"]["name"]
        return JsonOutputKeyToolsParser(key_name=name, first_tool_only=True)
    return PydanticOutputParser(pydantic_object=model) if model else JsonOutputParser()


def _parsed_beside_raw(parser: BaseOutputParser[Any]) -> Runnable[Any, dict[str, Any]]:
    """{raw, parsed, parsing_error}: what does not parse raises nothing."""
    parsed = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return parsed.with_fallbacks([failed], exception_key="parsing_error")
