"""Steps of a method -> sent over HTTP, blocking or awaited. The only file that knows httpx, loaded when
needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from strop.client.place import Place, find_place
from strop.client.sse import Follower
from strop.client.wire import Call, Pause, Steps, failure, read_reply, unreachable, wait_before_retry
from strop.locales import environment_language
from strop.schema.responses import StreamItem

if TYPE_CHECKING:
    import httpx

P = ParamSpec("P")
T = TypeVar("T")

_CONNECT_S = 5.0
_SILENCE_S = 60.0
"""A stream says something at least every 15 s."""


class Driver:
    """Sends steps and waits for them.

    Concurrency:
        May be used from several threads.
    """

    def __init__(self, base_url: str | None = None, api_key: str | None = None) -> None:
        import httpx

        self.place = find_place(base_url, api_key)
        self._http = httpx.Client(**_options(self.place))

    def __call__(self, steps: Steps[T]) -> T:
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                item = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            answer, error = None, None
            try:
                answer = time.sleep(item.seconds) if isinstance(item, Pause) else self._send(item)
            except Exception as failed:  # noqa: BLE001  handed to the steps, which let it through or not
                error = failed

    def stream(self, path: str) -> Generator[StreamItem]:
        import httpx

        follower = Follower()
        while not follower.ended:
            reason = "it ended the stream"
            try:
                with self._http.stream("GET", path, **_streaming(self.place)) as reply:
                    if reply.status_code != 200:
                        reply.read()
                        raise failure(reply.status_code, _body(reply), reply.headers)
                    for line in reply.iter_lines():
                        yield from follower.read(line)
            except httpx.TransportError as error:
                reason = _reason(error)
            if not follower.ended:
                time.sleep(follower.wait_s(self.place.url, reason))

    def close(self) -> None:
        self._http.close()

    def _send(self, call: Call) -> dict[str, Any]:
        import httpx

        tries = 0
        while True:
            tries += 1
            try:
                with ExitStack() as stack:
                    reply = self._http.request(**_request(call, self.place, stack))
            except httpx.RequestError as error:
                wait = wait_before_retry(call, tries, sent=_sent(error))
                if wait is None:
                    raise unreachable(_where(call, self.place), _reason(error)) from error
            else:
                wait = wait_before_retry(call, tries, status=reply.status_code, headers=reply.headers)
                if reply.status_code == 200 or wait is None:
                    return read_reply(call, reply.status_code, reply.headers, reply.content)
            time.sleep(wait)


class AsyncDriver:
    """Sends steps and lets others go on meanwhile.

    Concurrency:
        Belongs to one event loop.
    """

    def __init__(self, base_url: str | None = None, api_key: str | None = None) -> None:
        import httpx

        self.place = find_place(base_url, api_key)
        self._http = httpx.AsyncClient(**_options(self.place))

    async def __call__(self, steps: Steps[T]) -> T:
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                # Packing code and reading rows take a while; the loop goes on meanwhile.
                item = await asyncio.to_thread(_advance, steps, answer, error)
            except _Ended as end:
                return end.value
            answer, error = None, None
            try:
                answer = await (asyncio.sleep(item.seconds) if isinstance(item, Pause) else self._send(item))
            except Exception as failed:  # noqa: BLE001  handed to the steps, which let it through or not
                error = failed

    async def stream(self, path: str) -> AsyncGenerator[StreamItem]:
        import httpx

        follower = Follower()
        while not follower.ended:
            reason = "it ended the stream"
            try:
                async with self._http.stream("GET", path, **_streaming(self.place)) as reply:
                    if reply.status_code != 200:
                        await reply.aread()
                        raise failure(reply.status_code, _body(reply), reply.headers)
                    async for line in reply.aiter_lines():
                        for item in follower.read(line):
                            yield item
            except httpx.TransportError as error:
                reason = _reason(error)
            if not follower.ended:
                await asyncio.sleep(follower.wait_s(self.place.url, reason))

    async def close(self) -> None:
        await self._http.aclose()

    async def _send(self, call: Call) -> dict[str, Any]:
        import httpx

        tries = 0
        while True:
            tries += 1
            try:
                with ExitStack() as stack:
                    reply = await self._http.request(**_request(call, self.place, stack))
            except httpx.RequestError as error:
                wait = wait_before_retry(call, tries, sent=_sent(error))
                if wait is None:
                    raise unreachable(_where(call, self.place), _reason(error)) from error
            else:
                wait = wait_before_retry(call, tries, status=reply.status_code, headers=reply.headers)
                if reply.status_code == 200 or wait is None:
                    return read_reply(call, reply.status_code, reply.headers, reply.content)
            await asyncio.sleep(wait)


class _Blocking(Protocol):
    def _run(self, steps: Steps[T], /) -> T: ...


class _Awaited(Protocol):
    def _run(self, steps: Steps[T], /) -> Awaitable[T]: ...


class blocking(Generic[P, T]):
    """A method of a blocking client, made of its steps."""

    def __init__(self, steps: Callable[P, Steps[T]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> blocking[P, T]: ...
    @overload
    def __get__(self, instance: _Blocking, owner: type) -> Callable[P, T]: ...
    def __get__(self, instance: _Blocking | None, owner: type) -> blocking[P, T] | Callable[P, T]:
        if instance is None:
            return self

        def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return instance._run(self.steps(*args, **kwargs))

        return _named(method, self.steps)


class awaited(Generic[P, T]):
    """The same, to be awaited."""

    def __init__(self, steps: Callable[P, Steps[T]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> awaited[P, T]: ...
    @overload
    def __get__(self, instance: _Awaited, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, instance: _Awaited | None, owner: type) -> awaited[P, T] | Callable[P, Awaitable[T]]:
        if instance is None:
            return self

        async def method(*args: P.args, **kwargs: P.kwargs) -> T:
            return await instance._run(self.steps(*args, **kwargs))

        return _named(method, self.steps)


class _Ended(Exception):
    """StopIteration cannot leave a thread's future."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


def _advance(steps: Steps[Any], answer: Any, error: Exception | None) -> Call | Pause:
    try:
        return steps.send(answer) if error is None else steps.throw(error)
    except StopIteration as end:
        raise _Ended(end.value) from None


def _options(place: Place) -> dict[str, Any]:
    return {
        "base_url": place.api + "/",
        "headers": {
            "user-agent": f"strop/{version('strop')}",
            "accept-language": environment_language(),
        },
        "trust_env": not place.is_loopback,
        "follow_redirects": False,
    }


def _request(call: Call, place: Place, stack: ExitStack) -> dict[str, Any]:
    import httpx

    arguments: dict[str, Any] = {
        "method": call.method,
        "url": call.path,
        "params": {key: value for key, value in call.params.items() if value is not None},
        "timeout": httpx.Timeout(call.timeout_s, connect=_CONNECT_S),
    }
    if not arguments["params"]:
        del arguments["params"]  # else httpx takes the query of a signed URL away
    # An address of its own has a token of its own, or none: the API key must not go there.
    token = place.api_key if call.token is None else call.token
    if token:
        arguments["headers"] = _bearer(token)
    if call.upload is not None:
        file = stack.enter_context(call.upload.open("rb"))
        arguments["files"] = {"files": (call.upload.name, file, "application/octet-stream")}
        arguments["data"] = dict(call.fields)
    elif call.content is not None:
        arguments["content"] = call.content
    elif call.body is not None:
        arguments["json"] = dict(call.body)
    return arguments


def _streaming(place: Place) -> dict[str, Any]:
    import httpx

    return {"timeout": httpx.Timeout(_SILENCE_S, connect=_CONNECT_S), "headers": _bearer(place.api_key)}


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def _sent(error: httpx.RequestError) -> bool:
    import httpx

    return not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)


def _where(call: Call, place: Place) -> str:
    """Without the query, in which a signature may stand."""
    return call.path.partition("?")[0] if call.path.startswith("http") else place.url


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _body(reply: httpx.Response) -> dict[str, Any]:
    try:
        value = reply.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _named(method: Any, steps: Callable[..., Any]) -> Any:
    method.__name__ = steps.__name__.rstrip("_")
    method.__doc__ = steps.__doc__
    method.__wrapped__ = steps
    return method
