"""Pydantic's complaint of a key -> our words and the fix, for every form in which a job is asked for.

`root` is the model that was checked: the job file's, the client's or a request's. Its own fields say what
takes a key, in what range, and which key was meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from strop.config.file import KeyPath, short
from strop.config.key_table import Field, field_at, fields_at, unknown_key, wrong_choice
from strop.errors import Problem

MAX_REPORTED = 50
"""Mistakes of one kind: each is looked at for what was meant, and a file of thousands is another file."""

_SECRET = frozenset({"env", "secret", "mount_storage", "download_url", "webhook"})
"""Keys below which no value is shown."""

_EXAMPLES = {
    "model": "smollm2-135m",
    "datasets": "[{file_name: train.jsonl}]",
    "functions": "[{type: reward, fcmodel: {classpath: reward.py:MyReward}}]",
    "type": "reward",
    "fcmodel": "{classpath: reward.py:MyReward}",
    "classpath": "reward.py:MyReward",
    "file_name": "train.jsonl",
    "training": "{hyper_parameters: {learning_rate: 1e-6}}",
    "hyper_parameters": "{learning_rate: 1e-6}",
    "resources": "{mtu_capacity: 24}",
    "runtime": "{concurrency: 32}",
    "env": '{NAME: "value"}',
    "name": "calculator",
    "job_name": "calculator",
    "trackers": "[tensorboard]",
    "diagnosis": "{stop_on: [alarm]}",
    "webhook": "{url: https://example.com/hook}",
    "url": "https://example.com/hook",
}


def problems_of(
    error: ValidationError,
    root: type[BaseModel],
    *,
    problem: Callable[[KeyPath, str, str | None], Problem],
    data: Mapping[str, Any] | None = None,
) -> list[Problem]:
    """Every mistake that pydantic found in `data` at once; `problem` says where it stands."""
    found = error.errors(include_url=False)
    problems: list[Problem] = []
    for detail in found[:MAX_REPORTED]:
        path = _path(detail, root)
        first = mentioned(detail, path, root)[0] if detail["type"] == "value_error" else path
        problems.append(problem(first, *explain(detail, path, root, data or {})))
    if len(found) > MAX_REPORTED:
        problems.append(problem((), f"and {len(found) - MAX_REPORTED} more mistakes", "fix these first"))
    return list(dict.fromkeys(problems))


def explain(
    detail: ErrorDetails, path: KeyPath, root: type[BaseModel], data: Mapping[str, Any]
) -> tuple[str, str | None]:
    """What is wrong with the key at `path`, without its name, and the fix."""
    kind, value, field = detail["type"], detail["input"], field_at(path, root)
    usual = field.usual if field else None
    if kind == "value_error":
        return _contradiction(detail, path, root)
    if kind == "extra_forbidden":
        return "unknown key", unknown_key(str(path[-1]), path[:-1], data if len(path) == 1 else {}, root)
    if kind == "missing":
        return "missing", f"add {path[-1]}: {_EXAMPLES.get(str(path[-1]), '...')}"
    if value is None:
        return f"is empty, expected {_expected(detail, field)}", "give it a value or remove the key"
    if kind in ("enum", "literal_error"):
        return wrong_choice(value, field)
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        bounds = f"lie in {field.range}" if field else _bound(detail)
        return f"must {bounds}, found {short(value)}", usual
    if kind == "too_near_zero":
        return f"{value} is too close to 0 to make a difference", usual
    if kind == "finite_number":
        return f"must be a finite number, found {value}", usual
    if kind in ("string_too_short", "too_short"):
        return "must not be empty", _written(path)
    if kind == "string_too_long":
        return f"is too long: {len(str(value))} characters", f"keep to {detail.get('ctx', {})['max_length']}"
    if kind == "too_long":
        limit = detail.get("ctx", {})["max_length"]
        return f"has too many items: {len(cast('list[object]', value))}", f"keep to {limit}"
    if kind == "string_pattern_mismatch":
        return f"{short(value)} cannot be a name", "letters, digits, '.', '-' and '_' only, 128 at most"
    fix = usual
    if kind == "string_type" and isinstance(value, (int, float)):
        fix = f'put it in quotes: "{value}"'
    elif kind in ("model_type", "tuple_type", "list_type", "dict_type"):
        fix = _written(path) if path and isinstance(path[-1], str) else "write keys"
    expected = _expected(detail, field)
    return f"expected {expected}, found {_kind(value, secret=_is_secret(path))}", fix


def mentioned(detail: ErrorDetails, section: KeyPath, root: type[BaseModel]) -> list[KeyPath]:
    """The keys of a section that a rule of the schema names in its message; the section if it names none."""
    names = fields_at(section, root)
    subject = re.match(r"Value error, (\w+): ", detail["msg"])
    if subject and subject[1] in names:
        return [(*section, subject[1])]
    words = re.findall(r"\w+", detail["msg"])
    return [(*section, word) for word in dict.fromkeys(words) if word in names] or [section]


def _path(detail: ErrorDetails, root: type[BaseModel]) -> KeyPath:
    """The key's path, without what pydantic puts there for validators and for the branches of a union."""
    path = tuple(key for key in detail["loc"] if key != "function-before")
    if detail["type"] in ("extra_forbidden", "missing") or not path or not isinstance(path[-1], str):
        return path
    return path if field_at(path, root) is not None or len(path) == 1 else path[:-1]


def _expected(detail: ErrorDetails, field: Field | None) -> str:
    if field is not None:
        return field.expected
    items = {"model_type": "keys and values", "string_type": "text"}  # of a list
    return items.get(detail["type"]) or detail["msg"].removeprefix("Input should be ")


def _is_secret(path: KeyPath) -> bool:
    return any(key in _SECRET for key in path)


def _bound(detail: ErrorDetails) -> str:
    """The bound that a number breaks whose key is the user's own."""
    (name, bound), *_ = detail.get("ctx", {}).items()
    words = {"gt": "be above", "ge": "be at least", "lt": "be below", "le": "be at most"}
    return f"{words[name]} {bound:g}"


def _contradiction(detail: ErrorDetails, section: KeyPath, root: type[BaseModel]) -> tuple[str, str | None]:
    """A rule's text without the key that the problem names already, and the rule's fix."""
    text = detail["msg"].removeprefix("Value error, ")
    key, colon, rest = text.partition(": ")
    if colon and key in fields_at(section, root):
        text = rest
    return text, getattr(detail.get("ctx", {}).get("error"), "fix", None)


def _written(path: KeyPath) -> str | None:
    """The key as one would write it; None where no example is at hand."""
    example = _EXAMPLES.get(str(path[-1]))
    return None if example is None else f"e.g. {path[-1]}: {example}"


def _kind(value: object, *, secret: bool) -> str:
    match value:
        case dict():
            return "a section"
        case list():
            return "a list"
        case str():
            return "text" if secret else f"the text {short(value)}"
        case _ if secret:
            return "another value"
        case bool():
            return str(value).lower()
        case _:
            return short(value)
