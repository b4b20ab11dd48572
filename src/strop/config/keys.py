"""Data of a job file -> JobConfig, or every problem with place, key and fix. For `config.loading`.

Pydantic stops at the first contradiction and says nothing of sections that did not parse. So whatever is
wrong is taken out and the rest looked at again, until nothing new turns up; what depends on a key that was
taken out is not held against the file.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from strop.config.explain import MAX_REPORTED, explain, mentioned
from strop.config.file import HYPER, MOST_SHOWN, JobFile, KeyPath, dotted, read_scalar, short
from strop.config.hyper_parameters import HyperParameters, effective_keys
from strop.config.job import JobConfig
from strop.config.key_table import NO_BOUNDS, field_at, fields_at, unknown_key
from strop.errors import ConfigError, Problem
from strop.locales import msg
from strop.schema.training import TrainingType


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
    wrong = [*_wrong_types(data), *_keys_of_other_types(data)]
    for path, message, fix in wrong:
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
        reported = found[:MAX_REPORTED]
        meant = [_meant(detail) for detail in reported if detail["type"] == "extra_forbidden"]
        taken: list[KeyPath] = [tuple(detail["loc"]) for detail in found[MAX_REPORTED:]]
        if taken:
            message = f"and {len(taken)} more mistakes like these"
            problems.append(Problem(place=file.place(taken[0]), message=message, fix=msg("fix these first")))
        for detail in reported:
            if _of_its_items(detail):
                continue
            path = tuple(key for key in detail["loc"] if key != "function-before")
            blamed = mentioned(detail, path, JobConfig) if detail["type"] == "value_error" else [path]
            taken += blamed
            if any(_overlap(one, bad) for one in blamed for bad in doubtful):
                continue
            if detail["type"] == "missing" and path in meant:
                continue
            first = next((one for one in blamed if one in file.places), blamed[0])
            problems.append(_problem(file, first, *explain(detail, path, JobConfig, file.data)))
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


def _keys_of_other_types(data: Mapping[str, Any]) -> Iterator[tuple[KeyPath, str, str]]:
    """The hyper-parameters in the data of a file that do nothing in its training type."""
    training = data.get("training")
    section = cast("dict[str, Any]", training) if isinstance(training, dict) else {}
    hyper = section.get("hyper_parameters")
    word = section.get("type") or data.get("mode") or TrainingType.REINFORCEMENT
    if not isinstance(hyper, dict) or word not in list(TrainingType):
        return
    kind = TrainingType(word)
    given = set(cast("dict[str, Any]", hyper)) & set(HyperParameters.model_fields)
    for key in sorted(given - effective_keys(kind)):
        suited = [one.value for one in TrainingType if key in effective_keys(one)]
        message = f"has no effect in training type {kind.value}"
        yield (*HYPER, key), message, f"remove it; it is for {' and '.join(suited)}"


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value


def _meant(detail: ErrorDetails) -> KeyPath:
    """The key beside an unknown one that was meant by it, as far as its fix says; that is not missing."""
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
    return Problem(
        place=file.place(path),
        message=msg("{name}: {message}{here}", name=name, message=message, here=here),
        fix=fix,
    )


def _overlap(one: KeyPath, other: KeyPath) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]


def _is_number(text: str) -> bool:
    value = read_scalar(text)
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
