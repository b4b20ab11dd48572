"""What a scripted model says -> the body of an OpenAI chat completion, whole or in chunks. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. `arguments` as text goes out as it is, so that it may be malformed."""

    name: str
    arguments: Mapping[str, Any] | str

    @property
    def text(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(dict(self.arguments), ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer of the model. `finish_reason` is made of the rest where it is not given."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None

    @property
    def reason(self) -> str:
        return self.finish_reason or ("tool_calls" if self.tool_calls else "stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An HTTP error in place of an answer."""

    status: int
    message: str = "refused by the script"
    retry_after_s: float | None = None


def calls(*tool_calls: ToolCall | tuple[str, Mapping[str, Any] | str], text: str = "") -> Said:
    """An answer that calls tools, several in one turn if there are several.

    >>> calls(("add", {"a": 1, "b": 2})).reason
    'tool_calls'
    """
    made = tuple(one if isinstance(one, ToolCall) else ToolCall(*one) for one in tool_calls)
    return Said(text=text, tool_calls=made)


def cut(text: str, *tool_calls: ToolCall | tuple[str, Mapping[str, Any] | str]) -> Said:
    """An answer that its token limit has cut off.

    >>> cut('{"a": 1').reason
    'length'
    """
    return Said(text=text, tool_calls=calls(*tool_calls).tool_calls, finish_reason="length")


def refuses(
    status: int, message: str = "refused by the script", *, retry_after_s: float | None = None
) -> Refusal:
    """An HTTP error, as a busy or a broken endpoint gives."""
    return Refusal(status=status, message=message, retry_after_s=retry_after_s)


def completion(said: Said, *, number: int, model: str) -> dict[str, Any]:
    """The whole body. Token counts are those of words: nothing here has a tokenizer."""
    message: dict[str, Any] = {"role": "assistant", "content": said.text or (None if said.tool_calls else "")}
    if said.tool_calls:
        message["tool_calls"] = [
            {
                "id": f"call_{number}_{index}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.text},
            }
            for index, call in enumerate(said.tool_calls)
        ]
    num_words = len(said.text.split()) + sum(len(call.text.split()) for call in said.tool_calls)
    return {
        "id": f"chatcmpl-scripted-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": said.reason, "logprobs": None}],
        "usage": {"prompt_tokens": 0, "completion_tokens": num_words, "total_tokens": num_words},
    }


def chunks(body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The same as the chunks of a stream: the role, the text, the calls, the end."""
    choice = body["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if message.get("content"):
        deltas.append({"content": message["content"]})
    for index, call in enumerate(message.get("tool_calls") or []):
        deltas.append({"tool_calls": [{**call, "index": index}]})
    head = {**{key: body[key] for key in ("id", "created", "model")}, "object": "chat.completion.chunk"}
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**head, "choices": [], "usage": body.get("usage")}
