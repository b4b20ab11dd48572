"""A model client -> the same client, whose every chat call makes a span. Found out by what it has, not by its
class.

The client stays what it is: methods of this one object (or, for DashScope's Generation, of the class) are
wrapped, results come through untouched.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from strop.schema.span import SpanKind
from strop.tracing.chat_span import chat_request, chat_result, traced_stream
from strop.tracing.recording import Recording, begin, current
from strop.tracing.tracing import warn_once

Traced = TypeVar("Traced")

_MARK = "_strop_traced"
_METHODS = ("create", "parse")


def trace_client(client: Traced) -> Traced:
    """Make a span of every chat call of this client. Calling it again changes nothing.

    Knows OpenAI and AsyncOpenAI clients, their `chat.completions`, whatever holds these as `client` and
    `async_client` (LangChain's ChatOpenAI and its kin), and DashScope's Generation class. Streams, raw
    responses and `parse` are traced as well. Anything else is left alone, with one warning.

    Returns:
        The same object.
    """
    resources = _resources(client)
    for resource in resources:
        _wrap_resource(resource)
    if not resources and not _wrap_generation(client):
        name = client.__name__ if isinstance(client, type) else type(client).__name__
        warn_once(f"trace_client: cannot trace a {name}; mark your own function with observe_llm")
    return client


def _resources(client: Any) -> list[Any]:
    """The objects whose `create` makes chat calls."""
    completions = getattr(getattr(client, "chat", None), "completions", None)
    if callable(getattr(completions, "create", None)):
        return [completions]
    if callable(getattr(client, "create", None)) and not hasattr(client, "chat"):
        return [client]
    held = (getattr(client, name, None) for name in ("client", "async_client"))
    return [one for one in held if one is not None and callable(getattr(one, "create", None))]


def _wrap_resource(resource: Any) -> None:
    if getattr(resource, _MARK, False):
        return
    for name in _METHODS:
        method = getattr(resource, name, None)
        if callable(method):
            object.__setattr__(resource, name, _wrapped(method, provider="openai"))
    # These hold on to the methods they found; they are created again when next used.
    for name in ("with_raw_response", "with_streaming_response"):
        getattr(resource, "__dict__", {}).pop(name, None)
    object.__setattr__(resource, _MARK, True)


def _wrap_generation(client: Any) -> bool:
    """DashScope's class: its `call` is a classmethod, so that all of the process is traced."""
    if not isinstance(client, type):
        return False
    call = inspect.getattr_static(client, "call", None)
    if not isinstance(call, classmethod):
        return False
    inner = cast("Callable[..., Any]", call.__func__)  # pyright: ignore[reportUnknownMemberType]
    if getattr(inner, _MARK, False):
        return True
    signature = inspect.signature(inner)

    def asked(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        bound = signature.bind_partial(*args, **kwargs).arguments
        more = cast("Mapping[str, Any]", bound.get("kwargs", {}))
        messages = bound.get("messages")
        if messages is None and bound.get("prompt") is not None:
            messages = [{"role": "user", "content": bound["prompt"]}]
        return {**more, "model": bound.get("model"), "messages": messages}

    wrapper = _wrapped(inner, provider="dashscope", asked=asked)
    setattr(wrapper, _MARK, True)
    type.__setattr__(client, "call", classmethod(wrapper))
    return True


def _keywords(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's methods take nothing by position."""
    return dict(kwargs)


def _wrapped(
    method: Callable[..., Any],
    *,
    provider: str,
    asked: Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]] = _keywords,
) -> Callable[..., Any]:
    def start(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Recording:
        model = kwargs.get("model") or next((one for one in args if isinstance(one, str)), "model")
        recording = begin(f"chat {model}", SpanKind.LLM, client=True)
        recording.put(lambda: chat_request(asked(args, kwargs), provider))
        return recording

    @functools.wraps(method)
    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        recording = start(args, kwargs)
        try:
            with current(recording):
                result = await method(*args, **kwargs)
        except BaseException as error:
            recording.failed(error)
            recording.end()
            raise
        return _answered(result, recording)

    @functools.wraps(method)
    def plain(*args: Any, **kwargs: Any) -> Any:
        recording = start(args, kwargs)
        try:
            with current(recording):
                result = method(*args, **kwargs)
        except BaseException as error:
            recording.failed(error)
            recording.end()
            raise
        if inspect.isawaitable(result):  # a plain function that gives a coroutine
            return _later(result, recording)
        return _answered(result, recording)

    return asynchronous if inspect.iscoroutinefunction(method) else plain


async def _later(awaited: Any, recording: Recording) -> Any:
    try:
        result = await awaited
    except BaseException as error:
        recording.failed(error)
        recording.end()
        raise
    return _answered(result, recording)


def _answered(result: Any, recording: Recording) -> Any:
    """Write down what came; a stream keeps its span until it has been read."""
    if not recording.on:
        return result
    answer = _parsed(result)
    if _is_stream(answer):
        traced = traced_stream(answer, recording)
        return traced if answer is result else result
    recording.put(lambda: chat_result(answer))
    recording.end()
    return result


def _parsed(result: Any) -> Any:
    """What a raw response holds; it keeps what it parsed, so that the caller gets the same object."""
    if hasattr(result, "http_response") and callable(getattr(result, "parse", None)):
        try:
            parsed = result.parse()
        except Exception:  # noqa: BLE001  the caller will meet it where he parses
            return None
        return None if inspect.isawaitable(parsed) else parsed
    return result


def _is_stream(answer: Any) -> bool:
    return hasattr(answer, "__next__") or hasattr(answer, "__anext__")
