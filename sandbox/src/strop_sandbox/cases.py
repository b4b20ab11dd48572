"""A test as it is written -> its cases: bare or wrapped, a list or the JSON of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from strop_sandbox.errors import RequestError

_WRAPPED = ("StandardIO", "Standard")
_KEPT_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Case:
    """What a program is given, and what it should say."""

    stdin: str
    stdout: str

    def shown(self, *, whole: bool) -> dict[str, Any]:
        """As an answer shows it, long texts cut in the middle unless `whole`."""
        stdin, stdout = (text if whole else _cut(text) for text in (self.stdin, self.stdout))
        return {"input": {"stdin": stdin}, "output": {"stdout": stdout}}


class Cases(Protocol):
    """Any number of cases, in order."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Case: ...


def parse_json(value: object, place: str) -> object:
    """JSON that may have been written as a string.

    Raises:
        RequestError: a string that is not JSON.
    """
    if not isinstance(value, str | bytes):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise RequestError(f"{place} is a string that is not JSON: {error}") from error


def parse_cases(value: object) -> list[Case]:
    """Raises:
    RequestError: no list of cases, or none in it: a program that is tested by nothing is not right.
    """
    rows = parse_json(value, "test")
    if not isinstance(rows, list):
        raise RequestError(f"test must be a list of cases, found {type(rows).__name__}")
    cases = [parse_case(row, index) for index, row in enumerate(rows)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    refuse_no_cases(len(cases))
    return cases


def refuse_no_cases(count: int) -> None:
    if not count:
        raise RequestError("test has no cases, so that every program would pass")


def parse_case(row: object, index: int) -> Case:
    if isinstance(row, Mapping) and "type" in row and "data" in row:
        if row["type"] not in _WRAPPED:
            raise RequestError(f"case {index} is of type {row['type']!r}; known is {_WRAPPED[0]!r}")
        row = row["data"]  # pyright: ignore[reportUnknownVariableType]
    return Case(_text(row, "input", "stdin", index), _text(row, "output", "stdout", index))


def _text(row: Any, side: str, name: str, index: int) -> str:
    part = row.get(side) if isinstance(row, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    text = part.get(name, "" if side == "input" else None) if isinstance(part, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    if not isinstance(text, str):
        raise RequestError(f"case {index} has no text at {side}.{name}")
    return text


def _cut(text: str) -> str:
    if len(text) <= _KEPT_CHARACTERS:
        return text
    half = _KEPT_CHARACTERS // 2
    return f"{text[:half]}...{text[-half:]}"
