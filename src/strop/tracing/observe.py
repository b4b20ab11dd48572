"""Functions -> the same functions with a span around each call: processors, own model calls, own tools."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

from strop.schema.span import SpanKind
from strop.tracing.chat_span import chat_request, chat_result, traced_stream
from strop.tracing.content import json_text
from strop.tracing.ids import ids_of, with_ids
from strop.tracing.recording import Attributes, Recording, begin, current
from strop.tracing.tracing import OBSERVED, captures_content, tracer, warn_once

Decorated = TypeVar("Decorated")
_Function = Callable[..., Any]

_KINDS = {"rollout": SpanKind.ROLLOUT, "reward": SpanKind.REWARD, "group_reward": SpanKind.GROUP_REWARD}
_VERBS = {
    SpanKind.ROLLOUT: "invoke_rollout",
    SpanKind.REWARD: "invoke_reward",
    SpanKind.GROUP_REWARD: "invoke_reward",
}
_BASES = {
    "AbstractRolloutProcessor": SpanKind.ROLLOUT,
    "AbstractRewardProcessor": SpanKind.REWARD,
    "AbstractGroupRewardProcessor": SpanKind.GROUP_REWARD,
}


@overload
def observe_processor(fn: Decorated, /) -> Decorated: ...
@overload
def observe_processor(
    fn: None = None, /, *, otel_span_kind: Any = None, capture_io_attributes: bool = True
) -> Callable[[Decorated], Decorated]: ...
def observe_processor(
    fn: Any = None, /, *, otel_span_kind: Any = None, capture_io_attributes: bool = True
) -> Any:
    """On `process`, or on a processor class: a span of each call, with input, output, status and seconds.

    The span is ROLLOUT, REWARD or GROUP_REWARD by the input's `func_type`, else by the class; for
    OpenTelemetry it is INTERNAL, or of its kind `otel_span_kind`. `capture_io_attributes=False` leaves input
    and output off.
    """
    form = _Form(captures=capture_io_attributes, otel_kind=otel_span_kind)

    def decorate(target: Any) -> Any:
        return _observe_class(target, form) if isinstance(target, type) else _observe_process(target, form)

    return decorate if fn is None else decorate(fn)


@overload
def observe_tool(fn: Decorated, /) -> Decorated: ...
@overload
def observe_tool(
    fn: None = None, /, *, name: str | None = None, provider: str | None = None, handler: Any = None
) -> Callable[[Decorated], Decorated]: ...
def observe_tool(
    fn: Any = None, /, *, name: str | None = None, provider: str | None = None, handler: Any = None
) -> Any:
    """On a function that serves as a tool: a span of each call, with its arguments and what it gave.

    `name` is the tool's, by default the function's. `handler` is taken for DashScope's sake; spans are made
    without one, which is said once.
    """
    _without_handler("observe_tool", handler)

    def decorate(function: _Function) -> _Function:
        label = name or function.__name__
        signature = _signature_of(function)

        def arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Attributes:
            return tool_call(label, bound_arguments(signature, args, kwargs), provider)

        return _around(
            function,
            start=lambda args, kwargs: begin(f"execute_tool {label}", SpanKind.TOOL),
            before=arguments,
            after=tool_result,
        )

    return decorate if fn is None else decorate(fn)


@overload
def observe_llm(fn: Decorated, /) -> Decorated: ...
@overload
def observe_llm(
    fn: None = None,
    /,
    *,
    provider: str | None = None,
    request_model_arg: str = "model",
    messages_arg: str = "messages",
    prompt_arg: str = "prompt",
    result_mapper: Callable[[Any], Any] | None = None,
    handler: Any = None,
) -> Callable[[Decorated], Decorated]: ...
def observe_llm(
    fn: Any = None,
    /,
    *,
    provider: str | None = None,
    request_model_arg: str = "model",
    messages_arg: str = "messages",
    prompt_arg: str = "prompt",
    result_mapper: Callable[[Any], Any] | None = None,
    handler: Any = None,
) -> Any:
    """On a function that calls a model: a span of each call, with model, messages, usage and answer.

    The function names its model and messages as `request_model_arg` and `messages_arg` (or a text as
    `prompt_arg`). Its result is read as OpenAI's where it has `choices` and as DashScope's where it has
    `output`; `result_mapper` makes one of these of any other. A stream is measured to its end. `handler` is
    taken for DashScope's sake; spans are made without one, which is said once.

    Raises:
        TypeError: the function can be given neither messages nor prompt.
    """
    _without_handler("observe_llm", handler)

    def decorate(function: _Function) -> _Function:
        signature = _signature_of(function)
        _check_llm(function, signature, messages_arg, prompt_arg)

        def asked(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
            given = bound_arguments(signature, args, kwargs)
            more = given.pop("kwargs", None)
            values = {**(cast("dict[str, Any]", more) if isinstance(more, dict) else {}), **given}
            messages = values.get(messages_arg)
            if messages is None and values.get(prompt_arg) is not None:
                messages = [{"role": "user", "content": values[prompt_arg]}]
            return {**values, "model": values.get(request_model_arg), "messages": messages}

        def after(result: Any) -> Attributes:
            return chat_result(result_mapper(result) if result_mapper is not None else result)

        return _around(
            function,
            start=lambda args, kwargs: begin(
                f"chat {asked(args, kwargs)['model'] or 'model'}", SpanKind.LLM, client=True
            ),
            before=lambda args, kwargs: chat_request(asked(args, kwargs), provider),
            after=after,
        )

    return decorate if fn is None else decorate(fn)


def tool_call(name: str, arguments: object, provider: str | None) -> Attributes:
    """What is known of a tool call before it runs."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.provider.name": provider,
        "gen_ai.tool.call.arguments": json_text(arguments) if captures_content() else None,
    }


def tool_result(result: object) -> Attributes:
    return {"gen_ai.tool.call.result": json_text(result)} if captures_content() else {}


def bound_arguments(
    signature: inspect.Signature | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments by their names, without `self` and `cls`."""
    if signature is None:
        return {**{str(index): value for index, value in enumerate(args)}, **kwargs}
    try:
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError:  # the call itself will say so
        return {**{str(index): value for index, value in enumerate(args)}, **kwargs}
    bound.apply_defaults()
    return {name: value for name, value in bound.arguments.items() if name not in ("self", "cls")}


def _around(
    function: _Function,
    *,
    start: Callable[[tuple[Any, ...], Mapping[str, Any]], Recording],
    before: Callable[[tuple[Any, ...], Mapping[str, Any]], Attributes],
    after: Callable[[Any], Attributes],
) -> _Function:
    """The function with a span around each call, whichever of the four forms of function it is."""

    @functools.wraps(function)
    async def asynchronous(*args: Any, **kwargs: Any) -> Any:
        recording = start(args, kwargs)
        recording.put(lambda: before(args, kwargs))
        return await _finish(recording, lambda: function(*args, **kwargs), after)

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        recording = start(args, kwargs)
        recording.put(lambda: before(args, kwargs))
        try:
            with current(recording):
                result = function(*args, **kwargs)
        except BaseException as error:
            _end(recording, error)
            raise
        if inspect.isawaitable(result):
            awaited = result
            return _finish(recording, lambda: awaited, after)
        return _ended(recording, result, after)

    if inspect.iscoroutinefunction(function):
        return asynchronous
    return plain


async def _finish(
    recording: Recording, call: Callable[[], Awaitable[Any]], after: Callable[[Any], Attributes]
) -> Any:
    try:
        with current(recording):
            result = await call()
    except BaseException as error:
        _end(recording, error)
        raise
    return _ended(recording, result, after)


def _ended(recording: Recording, result: Any, after: Callable[[Any], Attributes]) -> Any:
    """The result; one that comes piece by piece keeps its span open to its end."""
    if recording.on and isinstance(result, Iterator | AsyncIterator):
        return traced_stream(cast("Any", result), recording, says_ok=True)
    recording.put(lambda: after(result))
    recording.ok()
    recording.end()
    return result


def _end(recording: Recording, error: BaseException) -> None:
    recording.failed(error)
    recording.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How the spans of a processor are to be. `otel_kind` is OpenTelemetry's, None for its INTERNAL."""

    captures: bool
    otel_kind: Any = None


def _without_handler(decorator: str, handler: Any) -> None:
    if handler is not None:
        warn_once(f"{decorator}: handler= has no effect; spans go where OTEL_EXPORTER_OTLP_ENDPOINT says")


def _observe_class(target: type[Any], form: _Form) -> type[Any]:
    process = getattr(target, "process", None)
    if process is None:
        raise TypeError(f"{target.__name__} has no process() to observe")
    target.process = _observe_process(process, form)
    return target


def _observe_process(process: _Function, form: _Form) -> _Function:
    if getattr(process, OBSERVED, False):
        return process

    @functools.wraps(process)
    async def asynchronous(self: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        kind = _kind_of(self, input)
        if kind is None:
            return await process(self, input, *args, **kwargs)
        span = _ProcessorSpan(self, input, kind, form)
        return await _observed_async(span, lambda: process(self, input, *args, **kwargs))

    @functools.wraps(process)
    def plain(self: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        kind = _kind_of(self, input)
        if kind is None:
            return process(self, input, *args, **kwargs)
        span = _ProcessorSpan(self, input, kind, form)
        with span.current():
            result = process(self, input, *args, **kwargs)
        if inspect.isawaitable(result):
            awaited = result
            return _observed_async(span, lambda: awaited)
        span.ended(result)
        return result

    wrapper = asynchronous if inspect.iscoroutinefunction(process) else plain
    setattr(wrapper, OBSERVED, True)
    return wrapper


async def _observed_async(span: _ProcessorSpan, call: Callable[[], Awaitable[Any]]) -> Any:
    with span.current():
        result = await call()
    span.ended(result)
    return result


class _ProcessorSpan:
    """A span of a processor's call: the ids of its input travel below it.

    The call may come in two pieces, what gives an awaitable and the waiting for it, each in a context of its
    own: the span begins with the first, and ends by `ended` or by what either piece raises.
    """

    def __init__(self, processor: Any, payload: Any, kind: SpanKind, form: _Form) -> None:
        self._name = f"{_VERBS[kind]} {type(processor).__name__}"
        self._payload = payload
        self._kind = kind
        self._form = form
        self._recording: Recording | None = None
        self._began = time.perf_counter()

    @contextmanager
    def current(self) -> Generator[None]:
        """Around a piece of the call."""
        with _below(self._payload):
            if self._recording is None:
                self._recording = begin(self._name, self._kind, otel_kind=self._form.otel_kind)
                self._recording.put(self._input)
            try:
                with current(self._recording):
                    yield
            except BaseException as error:
                _end(self._recording, error)
                raise

    def ended(self, result: Any) -> None:
        """The call has given this."""
        recording = self._recording
        assert recording is not None
        seconds = time.perf_counter() - self._began
        recording.put(lambda: _output(result, self._form.captures, seconds))
        recording.ok()
        recording.end()

    def _input(self) -> Attributes:
        ids = ids_of(self._payload)
        captures = self._form.captures and captures_content()
        return {
            **ids,
            "operation.name": _VERBS[self._kind],
            "request_id": ids.get("bailian.agentic_rl.rollout_id"),
            "input.value": json_text(self._payload) if captures else None,
        }


@contextmanager
def _below(payload: Any) -> Generator[None]:
    """The ids of this input travel with whatever happens in here."""
    if tracer() is None:
        yield
        return
    from opentelemetry import context

    token = context.attach(with_ids(ids_of(payload)))
    try:
        yield
    finally:
        context.detach(token)


def _output(result: Any, captures: bool, seconds: float) -> Attributes:
    reward = _field(_field(result, "reward"), "reward_score")
    status = _field(result, "status")
    return {
        "output.value": json_text(result) if captures and captures_content() else None,
        "agentic_rl.result.status": str(getattr(status, "value", status)) if status is not None else None,
        "agentic_rl.result.latency_s": seconds,
        "agentic_rl.result.reward_score": float(reward) if isinstance(reward, int | float) else None,
    }


def _field(holder: Any, name: str) -> Any:
    if isinstance(holder, Mapping):
        return cast("Mapping[str, Any]", holder).get(name)
    return getattr(holder, name, None)


def _kind_of(processor: Any, payload: Any) -> SpanKind | None:
    """By what the input says it is, else by the class."""
    for holder in (payload, processor):
        value = getattr(holder, "func_type", None)
        found = _KINDS.get(str(getattr(value, "value", value)))
        if found is not None:
            return found
    for base in type(processor).__mro__:
        if base.__name__ in _BASES:
            return _BASES[base.__name__]
    warn_once(
        f"observe_processor: {type(processor).__name__} is neither a rollout nor a reward processor: no spans"
    )
    return None


def _signature_of(function: _Function) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _check_llm(
    function: _Function, signature: inspect.Signature | None, messages_arg: str, prompt_arg: str
) -> None:
    if signature is None:
        return
    parameters = signature.parameters
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    if not takes_any and messages_arg not in parameters and prompt_arg not in parameters:
        raise TypeError(
            f"observe_llm: {function.__qualname__} has neither {messages_arg!r} nor {prompt_arg!r}; write "
            "def f(*, model, messages, ...), or name them with messages_arg= and request_model_arg="
        )
