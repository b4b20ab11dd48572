"""Any value -> the text that a span may hold of it: JSON, bounded, secrets masked.

Never raises, whatever user objects do: what cannot be said is said by its type.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

import orjson

MAX_CHARS = 32 * 1024
"""Of one attribute; OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT says otherwise."""

_MAX_DEPTH = 8
_MAX_ITEMS = 200
_CUT = "...[truncated]"
_SECRET_KEYS = frozenset(
    {
        "trigger_token",
        "instance_token",
        "api_token",
        "api_key",
        "apikey",
        "password",
        "access_key",
        "secret_key",
        "secret",
        "authorization",
    }
)


SECRET_NAMES = "STROP_SECRET_NAMES"
"""Names of environment variables, separated by commas, whose values no span may hold: a worker's
`runtime.env`."""

_LONGEST_SECRET = 4096


@lru_cache(maxsize=1)
def _secrets() -> tuple[str, ...]:
    names = os.environ.get(SECRET_NAMES, "").split(",")
    values = {os.environ.get(name, "") for name in names if name}
    return tuple(sorted((value for value in values if len(value) >= 8), key=len, reverse=True))


def max_chars() -> int:
    text = os.environ.get("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "")
    return int(text) if text.isdigit() and int(text) > 0 else MAX_CHARS


def json_text(value: object) -> str:
    """The value as JSON, or unchanged where it is text; cut at the limit."""
    limit = max_chars()
    if isinstance(value, str):
        return cut(value, limit)
    return cut(orjson.dumps(bounded(value, limit)).decode(), limit)


def cut(text: str, limit: int | None = None) -> str:
    """At most so many characters, with a mark where something is missing.

    >>> cut("a" * 40, 20)
    'aaaaaa...[truncated]'
    """
    limit = max_chars() if limit is None else limit
    text = text[: 4 * limit + _LONGEST_SECRET]  # what is behind it would be cut anyway
    text = text.encode("utf-8", "replace").decode() if _has_surrogates(text) else text
    for secret in _secrets():
        text = text.replace(secret, "***")
    return text if len(text) <= limit else text[: max(0, limit - len(_CUT))] + _CUT


def bounded(value: object, limit: int = MAX_CHARS, depth: int = 0) -> Any:
    """What JSON can hold of a value, without what is too deep, too long or secret."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, str):
        return cut(str(value), limit)
    if isinstance(value, bytes | bytearray):
        return f"<{len(value)} bytes>"
    if depth >= _MAX_DEPTH:
        return f"<{type(value).__name__}>"
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[object, object]", value).items())[:_MAX_ITEMS]
        return {str(key): _field(str(key), item, limit, depth) for key, item in pairs}
    if isinstance(value, list | tuple | set | frozenset):
        items = list(cast("list[object]", value))[:_MAX_ITEMS]
        return [bounded(item, limit, depth + 1) for item in items]
    return _of_object(value, limit, depth)


def _field(key: str, value: object, limit: int, depth: int) -> Any:
    if isinstance(value, str) and key.lower().replace("-", "_") in _SECRET_KEYS:
        return masked(value)
    return bounded(value, limit, depth + 1)


def masked(secret: str) -> str:
    """Enough of a secret to tell it from another.

    >>> masked("sk-1234567890"), masked("short")
    ('sk-1****7890', '****')
    """
    return f"{secret[:4]}****{secret[-4:]}" if len(secret) > 8 else "****"


def _of_object(value: object, limit: int, depth: int) -> Any:
    for name in ("model_dump", "to_dict", "dict"):  # pydantic first: it masks its secrets
        dump = getattr(value, name, None)
        if callable(dump) and not isinstance(value, type):
            try:
                dumped = dump()
            except Exception:  # noqa: BLE001  a user's object may raise anything
                continue
            if isinstance(dumped, Mapping):
                return bounded(cast("object", dumped), limit, depth + 1)
    try:
        return cut(str(value), limit)
    except Exception:  # noqa: BLE001  as above
        return f"<{type(value).__name__}>"


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
