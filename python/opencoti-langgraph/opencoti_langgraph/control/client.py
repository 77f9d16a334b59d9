"""The client of a server's control plane: every method blocking, and under a… for asyncio."""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
)
from contextlib import (
    AsyncExitStack,
    ExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from opencoti_langgraph.control import operations
from opencoti_langgraph.control.errors import (
    OpencotiError,
    ServerError,
    ServerTimeoutError,
    ServerUnreachableError,
    error_of,
)
from opencoti_langgraph.control.feed import Event, Feed
from opencoti_langgraph.control.steps import Request, Sleep, Steps
from opencoti_langgraph.control.wire import Tps

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"
CONNECT_TIMEOUT_S = 10.0


def blocking(
    operation: Callable[P, Steps[T]],
) -> Callable[Concatenate[ControlClient, P], T]:
    """The method that does `operation` and waits for its result."""

    def method(self: ControlClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(operation(*args, **kwargs))

    return _named_after(operation, method)


def awaitable(
    operation: Callable[P, Steps[T]],
) -> Callable[Concatenate[ControlClient, P], Coroutine[Any, Any, T]]:
    """The coroutine method that does `operation`."""

    async def method(self: ControlClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.arun(operation(*args, **kwargs))

    return _named_after(operation, method)


M = TypeVar("M", bound=Callable[..., Any])


def _named_after(operation: Callable[..., Any], method: M) -> M:
    return cast(M, functools.update_wrapper(method, operation))


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class ControlClient:
    """A server's address. Holds no connection: usable from any thread and any event loop.

    Each operation of `opencoti_langgraph.control.operations` is a method, and with an "a" in front
    a coroutine method. They raise OpencotiError.
    """

    def __init__(self, base_url: str = DEFAULT_URL, *, api_key: str | None = None) -> None:
        self.base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def __repr__(self) -> str:
        return f"ControlClient({self.base_url!r})"

    create_pool = blocking(operations.create_pool)
    fork_pool = blocking(operations.fork_pool)
    pools = blocking(operations.pools)
    pool = blocking(operations.pool)
    pin_pool = blocking(operations.pin_pool)
    unpin_pool = blocking(operations.unpin_pool)
    evict_pool = blocking(operations.evict_pool)
    flush_pool = blocking(operations.flush_pool)
    release_pool = blocking(operations.release_pool)
    set_admission = blocking(operations.set_admission)
    admission = blocking(operations.admission)
    capacity = blocking(operations.capacity)
    wait_for_room = blocking(operations.wait_for_room)
    sessions = blocking(operations.sessions)
    session = blocking(operations.session)
    end_session = blocking(operations.end_session)
    end_all_sessions = blocking(operations.end_all_sessions)
    tps = blocking(operations.tps)
    events = blocking(operations.events)
    limits = blocking(operations.limits)
    props = blocking(operations.props)
    tokenize = blocking(operations.tokenize)
    count_tokens = blocking(operations.count_tokens)
    compact_by_refork = blocking(operations.compact_by_refork)

    acreate_pool = awaitable(operations.create_pool)
    afork_pool = awaitable(operations.fork_pool)
    apools = awaitable(operations.pools)
    apool = awaitable(operations.pool)
    apin_pool = awaitable(operations.pin_pool)
    aunpin_pool = awaitable(operations.unpin_pool)
    aevict_pool = awaitable(operations.evict_pool)
    aflush_pool = awaitable(operations.flush_pool)
    arelease_pool = awaitable(operations.release_pool)
    aset_admission = awaitable(operations.set_admission)
    aadmission = awaitable(operations.admission)
    acapacity = awaitable(operations.capacity)
    await_for_room = awaitable(operations.wait_for_room)
    asessions = awaitable(operations.sessions)
    asession = awaitable(operations.session)
    aend_session = awaitable(operations.end_session)
    aend_all_sessions = awaitable(operations.end_all_sessions)
    atps = awaitable(operations.tps)
    aevents = awaitable(operations.events)
    alimits = awaitable(operations.limits)
    aprops = awaitable(operations.props)
    atokenize = awaitable(operations.tokenize)
    acount_tokens = awaitable(operations.count_tokens)
    acompact_by_refork = awaitable(operations.compact_by_refork)

    def watch_tps(self, *, reconnect: bool = True) -> Iterator[Tps]:
        """Live tokens per second, every time that the server says them."""
        for event in self._follow(Feed("/polykv/tps", reconnect=reconnect)):
            yield cast(Tps, event["data"])

    async def awatch_tps(self, *, reconnect: bool = True) -> AsyncGenerator[Tps, None]:
        async with aclosing(self._afollow(Feed("/polykv/tps", reconnect=reconnect))) as events:
            async for event in events:
                yield cast(Tps, event["data"])

    def watch_events(
        self, *, last_event_id: str | None = None, reconnect: bool = True
    ) -> Iterator[Event]:
        """What happens on the server, behind `last_event_id` or from now on: then a `reset` event
        comes first, with a snapshot. A connection that breaks is made again and misses nothing, or
        else says so with another `reset`.
        """
        return self._follow(Feed("/polykv/events", last_event_id, reconnect))

    def awatch_events(
        self, *, last_event_id: str | None = None, reconnect: bool = True
    ) -> AsyncGenerator[Event, None]:
        return self._afollow(Feed("/polykv/events", last_event_id, reconnect))

    def run(self, steps: Generator[Any, Any, T], perform: Callable[[Any], Any] | None = None) -> T:
        """Carries out a rule, blocking. `perform` does its steps but for pauses; None: `send`."""
        perform = perform or self.send
        try:
            step = next(steps)
            while True:
                try:
                    result = None
                    if isinstance(step, Sleep):
                        time.sleep(step.seconds)
                    else:
                        result = perform(step)
                except OpencotiError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return cast(T, end.value)

    async def arun(
        self,
        steps: Generator[Any, Any, T],
        perform: Callable[[Any], Awaitable[Any]] | None = None,
    ) -> T:
        """Carries out a rule on the running event loop."""
        perform = perform or self.asend
        try:
            step = next(steps)
            while True:
                try:
                    result = None
                    if isinstance(step, Sleep):
                        await asyncio.sleep(step.seconds)
                    else:
                        result = await perform(step)
                except OpencotiError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return cast(T, end.value)

    @contextmanager
    def stream(self, steps: Steps[Any]) -> Iterator[Iterator[ServerSentEvent]]:
        """The events of the answer that a rule ends with, while the context lasts: as open_events,
        but after as many tries as the rule makes.
        """
        with ExitStack() as stack:
            yield self.run(steps, lambda request: stack.enter_context(self.open_events(request)))

    @asynccontextmanager
    async def astream(self, steps: Steps[Any]) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
        async with AsyncExitStack() as stack:

            def enter(request: Request) -> Awaitable[Any]:
                return stack.enter_async_context(self.aopen_events(request))

            yield await self.arun(steps, enter)

    def send(self, request: Request) -> Any:
        """The JSON of the answer."""
        with self._failures(), httpx.Client(**self._settings(request)) as http:
            return _answer(http.request(**self._arguments(request)))

    async def asend(self, request: Request) -> Any:
        with self._failures():
            async with httpx.AsyncClient(**self._settings(request)) as http:
                return _answer(await http.request(**self._arguments(request)))

    @contextmanager
    def open_events(self, request: Request) -> Iterator[Iterator[ServerSentEvent]]:
        """The events of one request's answer, while the context lasts.

        Leaving it ends the connection, and with it what the server does for it.
        """
        with (
            self._failures(),
            httpx.Client(**self._settings(request)) as http,
            http.stream(**self._arguments(request)) as response,
        ):
            if response.is_error:
                response.read()
                raise _failure(response)
            yield EventSource(response).iter_sse()

    @asynccontextmanager
    async def aopen_events(self, request: Request) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
        with self._failures():
            async with (
                httpx.AsyncClient(**self._settings(request)) as http,
                http.stream(**self._arguments(request)) as response,
            ):
                if response.is_error:
                    await response.aread()
                    raise _failure(response)
                yield EventSource(response).aiter_sse()

    def _follow(self, feed: Feed) -> Iterator[Event]:
        pause: float | None = 0.0
        while pause is not None:
            time.sleep(pause)
            failure = None
            try:
                with self.open_events(feed.request()) as events:
                    for sse in events:
                        if (event := feed.take(sse)) is not None:
                            yield event
            except OpencotiError as error:
                failure = error
            pause = feed.pause_after(failure)

    async def _afollow(self, feed: Feed) -> AsyncGenerator[Event, None]:
        pause: float | None = 0.0
        while pause is not None:
            await asyncio.sleep(pause)
            failure = None
            try:
                async with self.aopen_events(feed.request()) as events:
                    async for sse in events:
                        if (event := feed.take(sse)) is not None:
                            yield event
            except OpencotiError as error:
                failure = error
            pause = feed.pause_after(failure)

    def _settings(self, request: Request) -> dict[str, Any]:
        # A connection per request: a kept one may be closed by the server just when it is used
        # again, and an asynchronous one belongs to one event loop.
        timeout = httpx.Timeout(request.timeout_s, connect=CONNECT_TIMEOUT_S)
        return {"verify": _tls(), "timeout": timeout}

    def _arguments(self, request: Request) -> dict[str, Any]:
        return {
            "method": request.method,
            "url": self.base_url + request.path,
            "params": request.params,
            "headers": {**self._headers, **request.headers},
            "json": request.body,
        }

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Failures of the transport, as this package's errors."""
        try:
            yield
        except httpx.TimeoutException as error:
            message = f"no answer from {self.base_url} in time"
            raise ServerTimeoutError(message) from error
        except (httpx.HTTPError, SSEError) as error:
            message = f"no answer from {self.base_url}: {error or type(error).__name__}"
            raise ServerUnreachableError(message) from error


def _answer(response: httpx.Response) -> Any:
    if response.is_error:
        raise _failure(response)
    try:
        return response.json()
    except ValueError as error:
        message = f"{response.url} did not answer with JSON: is this a PolyKV server?"
        raise ServerError(message, status=response.status_code) from error


def _failure(response: httpx.Response) -> OpencotiError:
    try:
        body = response.json()
    except ValueError:
        body = None
    return error_of(response.status_code, body, response.headers)
