"""A chat call's request and answer -> the `gen_ai.*` attributes of its span; streams are measured to their
end.

Reads OpenAI's objects and dicts, and DashScope's; what has another form leaves only what it has in common.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, cast

import orjson

from strop.tracing.content import bounded, cut, json_text, max_chars
from strop.tracing.recording import Attributes, Recording
from strop.tracing.tracing import captures_content

_ASKED = {
    "temperature": "temperature",
    "top_p": "top_p",
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "seed": "seed",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
"""Arguments that are numbers, and what follows `gen_ai.request.`."""


def chat_request(asked: Mapping[str, Any], provider: str | None) -> Attributes:
    """What is known before the answer."""
    stop = asked.get("stop")
    numbers = {
        f"gen_ai.request.{name}": asked[key]
        for key, name in _ASKED.items()
        if isinstance(asked.get(key), int | float)
    }
    model = asked.get("model")
    found: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider or "openai",
        "gen_ai.request.model": str(model) if model is not None else None,
        "gen_ai.request.stop_sequences": [stop] if isinstance(stop, str) else _texts(stop),
        **numbers,
    }
    messages = asked.get("messages")
    if captures_content() and isinstance(messages, list | tuple):
        found["gen_ai.input.messages"] = _messages_text(cast("Sequence[Any]", messages))
    return found


def chat_result(result: Any) -> Attributes:
    """What an answer says, whoever gave it."""
    choices = _get(result, "choices")
    if choices is None and _get(result, "output") is not None:
        return _dashscope_result(result)
    found: Attributes = {
        "gen_ai.response.model": _text(_get(result, "model")),
        "gen_ai.response.id": _text(_get(result, "id")),
        **_usage(_get(result, "usage")),
    }
    if isinstance(choices, list | tuple):
        found |= _choices(cast("Sequence[Any]", choices))
    elif choices is None and captures_content() and isinstance(result, str | Mapping):
        found["gen_ai.output.messages"] = _answer_text(
            [{"role": "assistant", "content": json_text(cast("object", result))}]
        )
    return found


def _dashscope_result(result: Any) -> Attributes:
    output = _get(result, "output")
    found: Attributes = {
        "gen_ai.response.id": _text(_get(result, "request_id")),
        **_usage(_get(result, "usage")),
    }
    choices = _get(output, "choices")
    if isinstance(choices, list | tuple) and choices:
        return found | _choices(cast("Sequence[Any]", choices))
    text = _get(output, "text")
    if text is not None and captures_content():
        found["gen_ai.output.messages"] = _answer_text([{"role": "assistant", "content": text}])
    return found


def _choices(choices: Sequence[Any]) -> Attributes:
    reasons = [str(reason) for choice in choices if (reason := _get(choice, "finish_reason"))]
    found: Attributes = {"gen_ai.response.finish_reasons": reasons or None}
    if captures_content():
        answers = [
            {**_plain_message(_get(choice, "message")), "finish_reason": _get(choice, "finish_reason")}
            for choice in choices
        ]
        found["gen_ai.output.messages"] = _answer_text(answers)
    return found


def _usage(usage: Any) -> Attributes:
    if usage is None:
        return {}

    def number(*names: str) -> int | None:
        values = (_get(usage, name) for name in names)
        return next((value for value in values if isinstance(value, int)), None)

    went_in, came_out = number("prompt_tokens", "input_tokens"), number("completion_tokens", "output_tokens")
    total = number("total_tokens")
    if total is None and went_in is not None and came_out is not None:
        total = went_in + came_out
    return {
        "gen_ai.usage.input_tokens": went_in,
        "gen_ai.usage.output_tokens": came_out,
        "gen_ai.usage.total_tokens": total,
    }


def _messages_text(messages: Sequence[Any]) -> str:
    """The newest messages that fit: a conversation grows, and what is new is at its end."""
    limit, size = max_chars(), 2
    shown: list[str] = []
    for message in reversed(messages):
        text = orjson.dumps(bounded(_with_parts(_plain_message(message)), limit)).decode()
        size += len(text) + 1
        if size > limit and shown:
            break
        shown.append(text)
    return cut("[" + ",".join(reversed(shown)) + "]", limit)


def _answer_text(answers: Sequence[Mapping[str, Any]]) -> str:
    return json_text([_with_parts(answer) for answer in answers])


def _plain_message(message: Any) -> dict[str, Any]:
    if message is None:
        return {"role": "assistant"}
    if isinstance(message, Mapping):
        return dict(cast("Mapping[str, Any]", message))
    names = ("role", "content", "tool_calls", "tool_call_id", "reasoning_content", "name")
    found = {name: _get(message, name) for name in names}
    if found["role"] is None:  # LangChain's messages say `type`
        found["role"] = _get(message, "type")
    return {name: value for name, value in found.items() if value is not None}


def _with_parts(message: Mapping[str, Any]) -> dict[str, Any]:
    """In the form of the GenAI conventions: role, parts, finish_reason."""
    parts: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": message["reasoning_content"]})
    content = message.get("content")
    if message.get("role") == "tool":
        parts.append({"type": "tool_call_response", "id": message.get("tool_call_id"), "response": content})
    elif content:
        parts.append({"type": "text", "content": content})
    for call in cast("Sequence[Any]", message.get("tool_calls") or ()):
        function = _get(call, "function")
        name, arguments = (
            _get(function if function is not None else call, key) for key in ("name", "arguments")
        )
        parts.append(
            {"type": "tool_call", "id": _get(call, "id"), "name": name, "arguments": _arguments(arguments)}
        )
    found: dict[str, Any] = {"role": message.get("role") or "assistant", "parts": parts}
    if message.get("finish_reason"):
        found["finish_reason"] = message["finish_reason"]
    return found


def _arguments(given: Any) -> Any:
    """As JSON where they are, so that secrets among them are masked."""
    if isinstance(given, str):
        try:
            return orjson.loads(given)
        except orjson.JSONDecodeError:
            return given
    return given


class _Gathered:
    """The chunks of a stream -> the answer they make."""

    def __init__(self) -> None:
        self._parts: dict[int, dict[str, Any]] = {}
        self._calls: dict[tuple[int, int], dict[str, Any]] = {}
        self._head: dict[str, Any] = {}
        self._last: Any = None

    def take(self, chunk: Any) -> None:
        if _get(chunk, "output") is not None and _get(chunk, "choices") is None:
            self._last = chunk  # DashScope's hold everything so far, or are read for their usage
            return
        for name in ("id", "model", "usage"):
            value = _get(chunk, name)
            if value:
                self._head[name] = value
        for choice in cast("Sequence[Any]", _get(chunk, "choices") or ()):
            self._take_choice(choice)

    def _take_choice(self, choice: Any) -> None:
        index = _get(choice, "index") or 0
        part = self._parts.setdefault(index, {"role": "assistant", "content": ""})
        if _get(choice, "finish_reason"):
            part["finish_reason"] = _get(choice, "finish_reason")
        delta = _get(choice, "delta")
        for name in ("content", "reasoning_content"):
            text = _get(delta, name)
            if isinstance(text, str):
                part[name] = part.get(name, "") + text
        for call in cast("Sequence[Any]", _get(delta, "tool_calls") or ()):
            key = (index, _get(call, "index") or 0)
            made = self._calls.setdefault(key, {"id": None, "function": {"name": "", "arguments": ""}})
            made["id"] = made["id"] or _get(call, "id")
            function = _get(call, "function")
            for name in ("name", "arguments"):
                made["function"][name] += _get(function, name) or ""

    def result(self) -> Any:
        if self._last is not None:
            return self._last
        choices = [
            {
                "message": {
                    **part,
                    "tool_calls": [c for (of, _), c in sorted(self._calls.items()) if of == index],
                },
                "finish_reason": part.get("finish_reason"),
            }
            for index, part in sorted(self._parts.items())
        ]
        return {**self._head, "choices": choices}


def traced_stream(stream: Any, recording: Recording, *, says_ok: bool = False) -> Any:
    """The stream with its span held open to its end: read up, closed, failed or let go.

    OpenAI's stay what they are, of their own class; others are wrapped.
    """
    inner: Any = getattr(stream, "_iterator", None)
    if hasattr(inner, "__anext__"):
        stream._iterator = chunks = _through_async(inner, recording, says_ok)
        stream.close = _closing_async(stream.close, chunks)
        return stream
    if hasattr(inner, "__next__"):
        stream._iterator = chunks = _through(inner, recording, says_ok)
        stream.close = _closing(stream.close, chunks)
        return stream
    if hasattr(stream, "__aiter__"):
        return _through_async(stream, recording, says_ok)
    return _through(stream, recording, says_ok)


def _closing(close: Callable[[], Any], chunks: Generator[Any]) -> Callable[[], Any]:
    def closing() -> Any:
        chunks.close()
        return close()

    return closing


def _closing_async(close: Callable[[], Any], chunks: AsyncGenerator[Any]) -> Callable[[], Any]:
    async def closing() -> Any:
        await chunks.aclose()
        return await close()

    return closing


def _through(chunks: Iterator[Any], recording: Recording, says_ok: bool) -> Generator[Any]:
    gathered = _Gathered()
    try:
        for chunk in chunks:
            _take(gathered, chunk, recording)
            yield chunk
        if says_ok:
            recording.ok()
    except GeneratorExit:
        raise
    except BaseException as error:
        recording.failed(error)
        raise
    finally:
        recording.put(lambda: chat_result(gathered.result()))
        recording.end()


async def _through_async(
    chunks: AsyncIterator[Any], recording: Recording, says_ok: bool
) -> AsyncGenerator[Any]:
    gathered = _Gathered()
    try:
        async for chunk in chunks:
            _take(gathered, chunk, recording)
            yield chunk
        if says_ok:
            recording.ok()
    except GeneratorExit:
        raise
    except BaseException as error:
        recording.failed(error)
        raise
    finally:
        recording.put(lambda: chat_result(gathered.result()))
        recording.end()


def _take(gathered: _Gathered, chunk: Any, recording: Recording) -> None:
    def take() -> Attributes:
        gathered.take(chunk)
        return {}

    recording.put(take)


def _get(holder: Any, name: str) -> Any:
    if isinstance(holder, Mapping):
        return cast("Mapping[str, Any]", holder).get(name)
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001  DashScope's objects raise KeyError for what they lack
        return None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _texts(values: Any) -> list[str] | None:
    return [str(one) for one in cast("Sequence[Any]", values)] if isinstance(values, list | tuple) else None
