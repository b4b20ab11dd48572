"""Tools and tool calls of a row -> what is wrong with them. For `data.rows`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from strop.errors import Problem

Row = dict[str, Any]

_CALL = '{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\\"a\\": 1}"}}'


def tool_call_problems(entries: list[Row], place: str) -> list[Problem]:
    """Calls of a conversation: each is well formed, and each is answered by one tool message.

    `entries` are messages whose roles and contents are in order.
    """
    problems: list[Problem] = []
    for index, message in enumerate(entries):
        calls = message.get("tool_calls")
        field = f"messages[{index}]"
        if calls and message["role"] != "assistant":
            text = f"{field}.tool_calls: only the assistant calls tools, this is from {message['role']!r}"
            problems.append(Problem(place=place, message=text, fix="remove them"))
        elif calls is not None and not isinstance(calls, list):
            problems.append(
                Problem(place=place, message=f"{field}.tool_calls: expected a list", fix=f"[{_CALL}]")
            )
        elif calls:
            found = list(_calls(cast("list[object]", calls), f"{field}.tool_calls", place))
            problems += found or _answers(entries, index, place)
    return problems


def _calls(calls: list[object], field: str, place: str) -> Iterator[Problem]:
    for index, call in enumerate(calls):
        function = cast("Row", call).get("function") if isinstance(call, dict) else None
        values = cast("Row", function) if isinstance(function, dict) else {}
        if not isinstance(values.get("name"), str) or not values["name"]:
            yield Problem(place=place, message=f"{field}[{index}].function.name: missing", fix=_CALL)
        elif not _is_object(values.get("arguments", {})):
            message = f"{field}[{index}].function.arguments: expected a JSON object as text"
            yield Problem(place=place, message=message, fix='e.g. "{\\"a\\": 1}"')


def _is_object(arguments: object) -> bool:
    """As text, which is OpenAI's form, or as the object itself."""
    if not isinstance(arguments, str):
        return isinstance(arguments, dict)
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _answers(entries: list[Row], index: int, place: str) -> list[Problem]:
    """The tool messages right after a call; the last turn of a row may still be waiting for none."""
    calls = cast("list[Row]", entries[index]["tool_calls"])
    answers = 0
    for message in entries[index + 1 :]:
        if message["role"] != "tool":
            break
        answers += 1
    if answers == len(calls) or (answers == 0 and index == len(entries) - 1):
        return []
    text = f"messages[{index}].tool_calls: {len(calls)} calls, but {answers} tool messages after them"
    return [Problem(place=place, message=text, fix="give each call one message with role tool")]
