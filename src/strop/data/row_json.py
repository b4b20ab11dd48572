"""A line of a dataset -> its one JSON value, or why no reader should take it. For `data.rows`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, cast

from strop.data.half_characters import HALF_FIX, half_character

MAX_DEPTH = 64
"""As deep as a server reads."""

_MAY_HOLD_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_MAX_DIGITS = 300


class BadLine(ValueError):
    """What is wrong with a line, and the fix."""

    def __init__(self, message: str, fix: str = "one JSON object a line") -> None:
        super().__init__(message)
        self.fix = fix


def parse_line(line: bytes) -> object:
    """
    Raises:
        BadLine: it is not one JSON value, or one that other readers would take for another.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8 at byte {error.start + 1} of the line", "save the file as UTF-8") from error
    try:
        value = json.loads(
            text, parse_constant=_constant, parse_float=_float, parse_int=_int, object_pairs_hook=_unique
        )
    except json.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise _too_deep() from error
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH or _MAY_HOLD_HALF.search(line):
        for place, one in _texts(value):
            if (half := half_character(one)) is not None:
                raise BadLine(f"{place or 'the row'}: {half}", HALF_FIX)
    return value


def _constant(name: str) -> object:
    raise BadLine(f"{name} is not JSON", "write a number, null or text")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadLine(f"{text[:40]} is too large for a number", "write less than 1e308, or text")
    return value


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise BadLine(f"a number of {len(text)} digits", "write it as text")
    return int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise BadLine(f"the key {next(key for key in keys if keys.count(key) > 1)!r} appears twice")
    return record


def _texts(value: object) -> Iterator[tuple[str, str]]:
    """Every text with the place it stands at, keys too, without recursion.

    Raises:
        BadLine: nested too deeply.
    """
    todo: list[tuple[str, int, object]] = [("", 0, value)]
    while todo:
        place, depth, one = todo.pop()
        if depth > MAX_DEPTH:
            raise _too_deep()
        if isinstance(one, str):
            yield place, one
        elif isinstance(one, list):
            items = cast("list[object]", one)
            todo += [(f"{place}[{index}]", depth + 1, item) for index, item in enumerate(items)]
        elif isinstance(one, dict):
            for key, item in cast("dict[str, object]", one).items():
                yield place, key
                todo.append((f"{place}.{key}" if place else key, depth + 1, item))


def _too_deep() -> BadLine:
    return BadLine(f"nested more than {MAX_DEPTH} levels deep", "flatten it")
