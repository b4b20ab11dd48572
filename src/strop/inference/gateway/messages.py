"""OpenAI messages -> the messages that chat templates expect.

Templates read plain strings and missing keys, OpenAI clients send parts and nulls. Content is never changed
beyond that: it becomes the prompt.
"""

from __future__ import annotations

import json
from typing import Any

from strop.inference.gateway.errors import RequestRefused

ROLES = ("system", "developer", "user", "assistant", "tool")


def for_template(messages: list[dict[str, Any]], *, raw_arguments: bool) -> list[dict[str, Any]]:
    """Join text parts, leave nulls out, call `developer` by its older name `system`.

    With `raw_arguments` the template prints a tool call's argument text as it is; else it gets the object.

    Raises:
        RequestRefused: 400 that names the message: an unknown role, a part that is no text, a malformed call.
    """
    return [_message(index, message, raw_arguments) for index, message in enumerate(messages)]


def _message(index: int, message: dict[str, Any], raw_arguments: bool) -> dict[str, Any]:
    place = f"messages[{index}]"
    role = message.get("role")
    if role not in ROLES:
        raise RequestRefused(
            f"{place}.role: expected one of {', '.join(ROLES)}, found {role!r}", param=f"{place}.role"
        )
    kept = {key: value for key, value in message.items() if value is not None}
    kept["role"] = "system" if role == "developer" else role
    kept["content"] = _text(message.get("content"), f"{place}.content")
    if calls := kept.pop("tool_calls", None):
        kept["tool_calls"] = _tool_calls(calls, f"{place}.tool_calls", raw_arguments)
    return kept


def _text(content: object, place: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestRefused(f"{place}: expected text or a list of parts", param=place)
    texts: list[str] = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise RequestRefused(
                f"{place}[{index}]: this model reads text only, found a part of type {kind!r}", param=place
            )
        texts.append(part["text"])
    return "\n".join(texts)


def _tool_calls(calls: object, place: str, raw_arguments: bool) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise RequestRefused(f"{place}: expected a list", param=place)
    made: list[dict[str, Any]] = []
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise RequestRefused(f"{place}[{index}].function.name is missing", param=place)
        arguments = function.get("arguments", "{}")
        if isinstance(arguments, str) and not raw_arguments:
            arguments = _parsed(arguments)
        made.append({**call, "function": {**function, "arguments": arguments}})
    return made


def _parsed(arguments: str) -> object:
    """What the agent sent back may be what the model wrote: text that is no JSON stays text."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
