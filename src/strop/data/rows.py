"""One line of JSON -> Sample, or everything that is wrong with it. For `data.reading`."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any, cast

from strop.data.row_json import BadLine, parse_line
from strop.errors import Problem
from strop.locales import msg
from strop.schema.sample import Sample

COLUMNS = ("messages", "rollout_extra", "ground_truth", "tools", "sample_id", "extra")
EXTRA = ("rollout_extra", "extra")
"""The same column, as Bailian and as Ark call it."""

ROLES = ("system", "developer", "user", "assistant", "tool")
ANSWERABLE = ("user", "tool")
"""Roles after which it is the model's turn."""

_EXAMPLE = 'e.g. "messages": [{"role": "user", "content": "2 + 2?"}]'

_CALL = '{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\\"a\\": 1}"}}'

Row = dict[str, Any]


def read_row(
    line: bytes, place: str, *, row: int, file_stem: str
) -> tuple[Sample | None, list[Problem], list[str]]:
    """Check one row.

    Returns:
        The sample, or None if the row is bad; its problems; keys that no function will ever see.
    """
    try:
        value = parse_line(line)
    except BadLine as error:
        return None, [Problem(place=place, message=str(error), fix=error.fix)], []
    if not isinstance(value, dict):
        message = f"expected a JSON object, found {kind_of(value)}"
        return None, [Problem(place=place, message=message, fix='{"messages": [...]}')], []
    record = cast("Row", value)
    problems = [
        *message_problems(record, place, last=ANSWERABLE),
        *tool_problems(record.get("tools"), place),
        *_other_problems(record, place),
    ]
    typos, unread = strange_keys(record, place, COLUMNS)
    problems += typos
    if problems:
        return None, problems, []
    extra = cast("Row", record.get("rollout_extra") or record.get("extra") or {})
    truth, own_id = record.get("ground_truth"), record.get("sample_id")
    sample = Sample(
        sample_id=f"{file_stem}-{row}" if own_id is None else str(own_id),
        row=row,
        messages=record["messages"],
        tools=record.get("tools") or None,
        ground_truth=extra.get("ground_truth") if truth is None else truth,
        rollout_extra=extra,
    )
    return sample, [], unread


def message_problems(record: Row, place: str, *, last: tuple[str, ...]) -> list[Problem]:
    """What is wrong with `messages`, the last of which must be from one of the roles `last`."""
    if "messages" not in record:
        return [Problem(place=place, message=msg("messages: missing"), fix=_EXAMPLE)]
    messages = record["messages"]
    if not isinstance(messages, list):
        message = f"messages: expected a list, found {kind_of(messages)}"
        return [Problem(place=place, message=message, fix=_EXAMPLE)]
    entries = cast("list[object]", messages)
    if not entries:
        return [Problem(place=place, message=msg("messages: empty"), fix=_EXAMPLE)]
    problems: list[Problem] = []
    for index, entry in enumerate(entries):
        problems += one_message(entry, f"messages[{index}]", place)
    final = entries[-1]
    if not problems and isinstance(final, dict) and (role := cast("Row", final)["role"]) not in last:
        lack = "nothing to answer" if last == ANSWERABLE else "no answer to learn from"
        message = f"messages: the last one is from {role!r}, so there is {lack}"
        fix = f"end with a message from {' or '.join(last)}"
        problems.append(Problem(place=place, message=message, fix=fix))
    return problems or _tool_call_problems(cast("list[Row]", entries), place)


def one_message(entry: object, field: str, place: str, *, example: str = _EXAMPLE) -> list[Problem]:
    """What is wrong with one message; `field` is where it stands in the row, `example` a good one there."""
    if not isinstance(entry, dict):
        message = f"{field}: expected an object, found {kind_of(entry)}"
        return [Problem(place=place, message=message, fix=example)]
    message = cast("Row", entry)
    role = message.get("role")
    if role not in ROLES:
        found = f"unknown role {role!r}" if "role" in message else "missing"
        near = difflib.get_close_matches(str(role), ROLES, n=1)
        fix = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(ROLES)}"
        return [Problem(place=place, message=msg("{field}.role: {found}", field=field, found=found), fix=fix)]
    content = message.get("content")
    if content is None and role == "assistant" and message.get("tool_calls"):
        return []
    if isinstance(content, list):
        return _part_problems(cast("list[object]", content), f"{field}.content", place)
    if not isinstance(content, str):
        found = f"expected text, found {kind_of(content)}" if "content" in message else "missing"
        return [Problem(place=place, message=msg("{field}.content: {found}", field=field, found=found))]
    if not content.strip() and role in ("user", "system", "developer"):
        return [
            Problem(
                place=place,
                message=msg("{field}.content: empty", field=field),
                fix=msg("write it or remove the message"),
            )
        ]
    return []


def _part_problems(parts: list[object], field: str, place: str) -> list[Problem]:
    """Content may be OpenAI's list of parts, as long as all are text: the models here see nothing else."""
    if not parts:
        return [Problem(place=place, message=msg("{field}: empty", field=field))]
    for index, part in enumerate(parts):
        fields = cast("Row", part) if isinstance(part, dict) else {}
        if fields.get("type") != "text" or not isinstance(fields.get("text"), str):
            message = f"{field}[{index}]: only parts of type text are supported"
            return [Problem(place=place, message=message, fix='{"type": "text", "text": "..."}')]
    return []


def tool_problems(tools: object, place: str) -> list[Problem]:
    """What is wrong with a row's tools."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        return [
            Problem(
                place=place, message=msg("tools: expected a list, found {kind_of}", kind_of=kind_of(tools))
            )
        ]
    problems: list[Problem] = []
    for index, tool in enumerate(cast("list[object]", tools)):
        function = cast("Row", tool).get("function") if isinstance(tool, dict) else None
        name = cast("Row", function).get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            fix = '{"type": "function", "function": {"name": ..., "parameters": ...}}'
            message = f"tools[{index}].function.name: missing"
            problems.append(Problem(place=place, message=message, fix=fix))
    return problems


def _tool_call_problems(entries: list[Row], place: str) -> list[Problem]:
    """Calls of a conversation: each is well formed, and each is answered by one tool message.

    `entries` are messages whose roles and contents are in order.
    """
    problems: list[Problem] = []
    for index, message in enumerate(entries):
        calls = message.get("tool_calls")
        field = f"messages[{index}]"
        if calls and message["role"] != "assistant":
            text = f"{field}.tool_calls: only the assistant calls tools, this is from {message['role']!r}"
            problems.append(Problem(place=place, message=text, fix=msg("remove them")))
        elif calls is not None and not isinstance(calls, list):
            problems.append(
                Problem(
                    place=place,
                    message=msg("{field}.tool_calls: expected a list", field=field),
                    fix=msg("[{call}]", call=_CALL),
                )
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
            yield Problem(
                place=place,
                message=msg("{field}[{index}].function.name: missing", field=field, index=index),
                fix=_CALL,
            )
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
    return [Problem(place=place, message=text, fix=msg("give each call one message with role tool"))]


def _other_problems(record: Row, place: str) -> list[Problem]:
    problems: list[Problem] = []
    for name in EXTRA:
        if (extra := record.get(name)) is not None and not isinstance(extra, dict):
            message = f"{name}: expected an object, found {kind_of(extra)}"
            problems.append(Problem(place=place, message=message, fix=msg('e.g. {"answer": 4}')))
    if all(record.get(name) for name in EXTRA):
        message = "extra: is the same column as rollout_extra, which is also given"
        problems.append(Problem(place=place, message=message, fix=msg("keep one of them")))
    return problems + id_problems(record, place)


def id_problems(record: Row, place: str) -> list[Problem]:
    """What is wrong with a row's own id."""
    problems: list[Problem] = []
    sample_id = record.get("sample_id")
    if isinstance(sample_id, bool) or not isinstance(sample_id, (str, int, type(None))):
        problems.append(
            Problem(
                place=place,
                message=msg("sample_id: expected text, found {kind_of}", kind_of=kind_of(sample_id)),
            )
        )
    elif sample_id == "" or len(str(sample_id)) > 256:
        problems.append(Problem(place=place, message=msg("sample_id: must have 1 to 256 characters")))
    return problems


def strange_keys(record: Row, place: str, columns: tuple[str, ...]) -> tuple[list[Problem], list[str]]:
    """Keys that look like a misspelt column are errors; others are only never read."""
    typos: list[Problem] = []
    unread: list[str] = []
    for key in record:
        if key in columns:
            continue
        near = [
            name for name in difflib.get_close_matches(key, columns, n=1, cutoff=0.8) if name not in record
        ]
        if near:
            message = f"{key}: unknown key"
            typos.append(
                Problem(place=place, message=message, fix=msg("did you mean {near!r}?", near=near[0]))
            )
        else:
            unread.append(key)
    return typos, unread


def kind_of(value: object) -> str:
    """What JSON calls it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return f"the number {value!r}"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"
