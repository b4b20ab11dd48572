"""Data of a job file -> JobConfig, or every problem with place, key and fix. For `config.loading`.

Pydantic stops at the first contradiction and says nothing of sections that did not parse. So whatever is
wrong is taken out and the rest looked at again, until nothing new turns up; what depends on a key that was
taken out is not held against the file.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from strop.config.file import JobFile, KeyPath, dotted, read_scalar
from strop.config.job import JobConfig
from strop.config.key_table import NO_BOUNDS, field_at, fields_at, unknown_key, wrong_choice
from strop.config.training_types import keys_of_other_types
from strop.config.yaml_nodes import MOST_SHOWN, short
from strop.errors import ConfigError, Problem

MOST_TOLD = 50
"""Mistakes of one kind: each is looked at for what was meant, and a file of thousands is another file."""


class Checked:
    """What came of a check. `config` holds stand-ins at the `doubtful` paths."""

    def __init__(self, config: JobConfig, doubtful: set[KeyPath], problems: list[Problem]) -> None:
        self.config = config
        self.doubtful = doubtful
        self.problems = problems

    def trusted(self, path: KeyPath) -> bool:
        """Whether the value at `path` is the file's own, so that more may be said about it."""
        return not any(_overlap(path, bad) for bad in self.doubtful)


def check_keys(file: JobFile) -> Checked:
    """Find everything wrong with names, types, ranges and the schema's own rules."""
    data = copy.deepcopy(file.data)
    if isinstance(trackers := data.get("trackers"), list):
        items = cast("list[Any]", trackers)
        data["trackers"] = [{"type": item} if isinstance(item, str) else item for item in items]
    problems: list[Problem] = []
    doubtful: set[KeyPath] = set()
    for path in file.unread:
        _take_out(data, path, doubtful)
    for path, message, fix in [*_wrong_types(data), *keys_of_other_types(data)]:
        problems.append(_problem(file, path, message, fix))
        _take_out(data, path, doubtful)
    while True:
        try:
            return Checked(JobConfig.model_validate(data), doubtful, problems)
        except ValidationError as error:
            # A default that follows from a bad value is no mistake of its own.
            found = [
                one for one in error.errors(include_url=False) if one["type"] != "default_factory_not_called"
            ]
        told = found[:MOST_TOLD]
        meant = [_meant(detail) for detail in told if detail["type"] == "extra_forbidden"]
        taken: list[KeyPath] = [tuple(detail["loc"]) for detail in found[MOST_TOLD:]]
        if taken:
            message = f"and {len(taken)} more mistakes like these"
            problems.append(Problem(place=file.place(taken[0]), message=message, fix="mend these first"))
        for detail in told:
            if _of_its_items(detail):
                continue
            path = tuple(key for key in detail["loc"] if key != "function-before")
            blamed = _mentioned(detail, path) if detail["type"] == "value_error" else [path]
            taken += blamed
            if any(_overlap(one, bad) for one in blamed for bad in doubtful):
                continue
            if detail["type"] == "missing" and path in meant:
                continue
            first = next((one for one in blamed if one in file.places), blamed[0])
            problems.append(_problem(file, first, *_explain(detail, path, file)))
        if doubtful.issuperset(taken):
            raise ConfigError(str(file.path), problems)
        for path in taken:
            _take_out(data, path, doubtful)


def _wrong_types(data: dict[str, Any]) -> Iterator[tuple[KeyPath, str, str | None]]:
    """What pydantic would let pass: numbers in quotes, true for 1, infinities."""
    for path, value in list(_leaves(data, ())):
        field = field_at(path)
        if field is None:
            continue
        usual = field.usual
        if isinstance(value, float) and not math.isfinite(value) and field.kinds & {int, float}:
            within = f" in {field.range}" if field.range != NO_BOUNDS else ""
            yield path, f"must be a finite number{within}, found {value}", usual
        elif isinstance(value, bool) and bool not in field.kinds:
            fix = (
                f'write it in quotes: "{"no" if not value else "yes"}"' if not field.kinds - {str} else usual
            )
            yield path, f"expected {field.expected}, found {str(value).lower()}", fix
        elif bool in field.kinds and not isinstance(value, (bool, type(None))):
            yield path, f"expected true or false, found {short(value)}", "write true or false, without quotes"
        elif isinstance(value, str) and field.kinds & {int, float}:
            fix = "remove the quotes" if _is_number(value) else usual
            yield path, f"expected {field.expected}, found the text {short(value)}", fix
        elif (
            isinstance(value, float)
            and int in field.kinds
            and float not in field.kinds
            and value.is_integer()
        ):
            fits = abs(value) < 1e15
            within = "" if fits else f" in {field.range}"
            fix = f"write {int(value)}" if fits else usual
            yield path, f"expected a whole number{within}, found {value!r}", fix


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value


def _explain(detail: ErrorDetails, path: KeyPath, file: JobFile) -> tuple[str, str | None]:
    """One of pydantic's complaints in our words, with its mend."""
    kind, value, field = detail["type"], detail["input"], field_at(path)
    items = {"model_type": "keys and values", "string_type": "text"}  # of a list
    expected = field.expected if field else items.get(detail["type"], "something else")
    usual = field.usual if field else None
    if kind == "value_error":
        return _contradiction(detail, path)
    if kind == "extra_forbidden":
        around = file.data if len(path) == 1 else {}
        return "unknown key", unknown_key(str(path[-1]), path[:-1], around)
    if kind == "missing":
        return "missing", f"add {path[-1]}: {_example(str(path[-1]))}"
    if value is None:
        return f"is empty, expected {expected}", "give it a value or remove the key"
    if kind in ("enum", "literal_error"):
        return wrong_choice(value, field)
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        bounds = f"lie in {field.range}" if field else _bound(detail)
        return f"must {bounds}, found {short(value)}", usual
    if kind == "too_near_zero":
        return f"{value} is too near 0 to be told from it", usual
    if kind == "finite_number":
        return f"must be a finite number, found {value}", usual
    if kind in ("string_too_short", "too_short"):
        return "must not be empty", f"e.g. {path[-1]}: {_example(str(path[-1]))}"
    if kind == "string_too_long":
        return f"is too long: {len(str(value))} characters", f"keep to {detail.get('ctx', {})['max_length']}"
    fix = usual
    if kind == "string_pattern_mismatch":
        return f"{short(value)} cannot be a name", "letters, digits, '.', '-' and '_' only, 128 at most"
    if kind == "string_type" and isinstance(value, (int, float)):
        fix = f'put it in quotes: "{value}"'
    elif kind in ("model_type", "tuple_type", "dict_type"):
        fix = f"e.g. {path[-1]}: {_example(str(path[-1]))}" if isinstance(path[-1], str) else "write keys"
    return f"expected {expected}, found {_kind(value)}", fix


def _bound(detail: ErrorDetails) -> str:
    """The bound that a number breaks whose key is the user's own."""
    (name, bound), *_ = detail.get("ctx", {}).items()
    words = {"gt": "be above", "ge": "be at least", "lt": "be below", "le": "be at most"}
    return f"{words[name]} {bound:g}"


def _contradiction(detail: ErrorDetails, section: KeyPath) -> tuple[str, str | None]:
    """A rule's text without the key that the problem names already, and the rule's mend."""
    text = detail["msg"].removeprefix("Value error, ")
    key, colon, rest = text.partition(": ")
    if colon and key in fields_at(section):
        text = rest
    return text, getattr(detail.get("ctx", {}).get("error"), "fix", None)


def _mentioned(detail: ErrorDetails, section: KeyPath) -> list[KeyPath]:
    """The keys of a section that a rule of the schema names in its message; the section if it names none."""
    names = fields_at(section)
    subject = re.match(r"Value error, (\w+): ", detail["msg"])
    if subject and subject[1] in names:
        return [(*section, subject[1])]
    words = re.findall(r"\w+", detail["msg"])
    return [(*section, word) for word in dict.fromkeys(words) if word in names] or [section]


def _meant(detail: ErrorDetails) -> KeyPath:
    """The key beside an unknown one that was meant by it, as far as its mend says; that is not missing."""
    section = detail["loc"][:-1]
    fix = unknown_key(str(detail["loc"][-1]), section, {})
    return (*section, next((name for name in fields_at(section) if repr(name) in fix), ""))


def _of_its_items(detail: ErrorDetails) -> bool:
    """A list that pydantic calls too short because its items are wrong: those speak for themselves."""
    return detail["type"] == "too_short" and bool(detail["input"])


def _take_out(data: dict[str, Any], path: KeyPath, doubtful: set[KeyPath]) -> None:
    """Remove a key, or put something harmless where the schema needs one."""
    doubtful.add(path)
    at: Any = data
    for depth, key in enumerate(path):
        last = depth == len(path) - 1
        if isinstance(at, list) and isinstance(key, int):
            items = cast("list[Any]", at)
            if last:
                if path[:-1] in (("datasets",), ("functions",)):
                    items[key] = _stand_in(path[:-1], len(doubtful))[0]
                else:
                    _take_out(data, path[:-1], doubtful)
                return
            at = items[key]
        elif isinstance(at, dict):
            section = cast("dict[str | int, Any]", at)
            if last:
                section.pop(key, None)
                field = field_at(path)
                if field is not None and field.required:
                    section[key] = _stand_in(path, len(doubtful))
                return
            at = section.get(key)
        else:
            return


def _stand_in(path: KeyPath, number: int) -> Any:
    """A valid value for a required key; the number keeps function names apart."""
    function = {"type": "reward", "fcmodel": {"classpath": f"stand.in{number}"}}
    stand_ins: dict[str, Any] = {
        "model": "stand-in",
        "name": "stand-in",
        "datasets": [{"file_name": "stand-in"}],
        "file_name": "stand-in",
        "functions": [function],
        "type": "tensorboard" if "trackers" in path else "reward",
        "url": "http://stand.in",
        "fcmodel": function["fcmodel"],
        "classpath": f"stand.in{number}",
    }
    return stand_ins[str(path[-1])]


def _problem(file: JobFile, path: KeyPath, message: str, fix: str | None) -> Problem:
    here = f" (here: {file.written[path]})" if path in file.written else ""
    name = dotted(path)
    name = name if len(name) <= MOST_SHOWN else f"{name[:MOST_SHOWN]}..."
    return Problem(place=file.place(path), message=f"{name}: {message}{here}", fix=fix)


def _overlap(one: KeyPath, other: KeyPath) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _example(key: str) -> str:
    examples = {
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
    return examples.get(key, "...")


def _is_number(text: str) -> bool:
    value = read_scalar(text)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _kind(value: object) -> str:
    match value:
        case dict():
            return "a section"
        case list():
            return "a list"
        case str():
            return f"the text {short(value)}"
        case bool():
            return str(value).lower()
        case _:
            return short(value)
