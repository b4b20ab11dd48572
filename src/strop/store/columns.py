"""Python values -> columns that give back exactly what they were given.

The types of columns that SQLite, PostgreSQL or JSON would bend: times lose their zone, NaN becomes NULL,
floats become text. Used by the tables only.
"""

from __future__ import annotations

import json
import math
import sys
import zlib
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import orjson
from sqlalchemy import BigInteger, DateTime, Dialect, Double, Integer, LargeBinary, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

ROW_ID: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")
"""A counting primary key: only a plain INTEGER counts by itself in SQLite."""

_COMPRESS_FROM = 256
"""Bytes of JSON below which zlib saves nothing worth its time."""


class UtcTime(TypeDecorator[datetime]):
    """Aware datetimes. SQLite drops the zone, so everything is UTC on disk."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"expected a time with a zone, found {value!r}; use datetime.now(UTC)")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Measured(TypeDecorator[float]):
    """A float that may be NaN or infinite. SQLite has no NaN, so it stands as NULL: a row with NULL was
    measured and undefined, a missing row was not measured."""

    impl = Double()
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:
        return None if value is None or math.isnan(value) else float(value)

    def process_result_value(self, value: float | None, dialect: Dialect) -> float:
        return math.nan if value is None else value


class Written(TypeDecorator[str]):
    """Text from anywhere. Lone surrogates and NUL, which databases refuse, become U+FFFD."""

    impl = Text()
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (value.isascii() and "\0" not in value):
            return value
        return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace").replace("\0", "\ufffd")


class PackedJson(TypeDecorator[Any]):
    """Any JSON value, as compressed bytes; what orjson cannot say (lone surrogates, huge integers,
    NaN) goes through the standard library."""

    impl = LargeBinary()
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes:
        return pack_json(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> Any:
        return None if value is None else unpack_json(value)


class PackedInts(TypeDecorator[tuple[int, ...]]):
    """Token ids and versions, in the fewest bytes each that hold the largest."""

    impl = LargeBinary()
    cache_ok = True

    def process_bind_param(self, value: tuple[int, ...] | None, dialect: Dialect) -> bytes | None:
        return None if value is None else pack_ints(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> tuple[int, ...] | None:
        return None if value is None else cast("tuple[int, ...]", _unpack(value))


class PackedFloats(TypeDecorator[tuple[float, ...]]):
    """Logprobs: float32 where that loses nothing, as for everything a float32 engine says; else float64."""

    impl = LargeBinary()
    cache_ok = True

    def process_bind_param(self, value: tuple[float, ...] | None, dialect: Dialect) -> bytes | None:
        return None if value is None else pack_floats(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> tuple[float, ...] | None:
        return None if value is None else cast("tuple[float, ...]", _unpack(value))


def pack_json(value: Any) -> bytes:
    """A byte saying how (`o` orjson, `p` Python's json; capital when compressed), then UTF-8 JSON."""
    try:
        how, text = b"o", orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
        if b"null" in text and _has_nan(value):  # orjson writes NaN as null
            how, text = b"p", json.dumps(value).encode()
    except TypeError:
        how, text = b"p", json.dumps(value).encode()
    return how + text if len(text) < _COMPRESS_FROM else how.upper() + zlib.compress(text, 1)


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_nan(item) for item in cast("dict[Any, Any]", value).values())
    if isinstance(value, list | tuple):
        return any(_has_nan(item) for item in cast("list[Any]", value))
    return False


def unpack_json(packed: bytes) -> Any:
    how, text = packed[:1], packed[1:]
    if how.isupper():
        text = zlib.decompress(text)
    return orjson.loads(text) if how.lower() == b"o" else json.loads(text)


def pack_ints(values: Sequence[int]) -> bytes:
    """A byte naming the width, then little-endian integers."""
    low, high = (min(values), max(values)) if values else (0, 0)
    code = next((code for code, limit in (("B", 2**8), ("H", 2**16), ("I", 2**32)) if high < limit), "q")
    return _pack(code if low >= 0 else "q", values)


def pack_floats(values: Sequence[float]) -> bytes:
    """A byte naming the width, then little-endian IEEE floats.

    >>> len(pack_floats([-0.5, -1.25])), len(pack_floats([-0.1]))
    (9, 9)
    """
    exact = array("f", values).tolist() == list(values)  # NaN equals nothing: float64
    return _pack("f" if exact else "d", values)


def _pack(code: str, values: Sequence[Any]) -> bytes:
    packed = array(code, values)
    if sys.byteorder == "big":
        packed.byteswap()
    return code.encode() + packed.tobytes()


def _unpack(packed: bytes) -> tuple[Any, ...]:
    values: array[Any] = array(packed[:1].decode())
    values.frombytes(packed[1:])
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)
