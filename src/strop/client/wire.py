"""One call of the API -> its reply as plain values, or the error that it means. No network here.

A method of a client is a generator of calls (`Steps`): `drive` sends them, blocking or awaited, so that each
is written once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel, ValidationError

from strop.errors import (
    AccessError,
    ConflictError,
    ForbiddenError,
    FunctionError,
    MissingError,
    RequestError,
    StropError,
    ThrottledError,
    TooLargeError,
    UnavailableError,
)
from strop.locales import msg
from strop.schema.responses import Listed

MAX_TRIES = 4
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 8.0
_TRANSIENT = (429, 502, 503, 504)
_ERROR_OF: dict[int, type[StropError]] = {
    401: AccessError,
    403: ForbiddenError,
    404: MissingError,
    409: ConflictError,
    413: TooLargeError,
    422: FunctionError,
    429: ThrottledError,
}

LONG_S = 600.0
"""For calls that wait for a build or a start, or carry a large file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request. `path` is below `/api/v1`, or a whole URL that the server gave.

    `idempotent` calls may be sent again after a failure that may have done its work. `token` replaces the API
    key; an empty one sends none. `answer` names the part of the reply that is wanted; None is all of it.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    body: Mapping[str, Any] | None = None
    content: bytes | None = None
    upload: Path | None = None
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    idempotent: bool = True
    token: str | None = None
    answer: Literal["output", "data"] | None = "output"
    timeout_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Time to let pass between calls."""

    seconds: float


T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)

Steps = Generator[Call | Pause, Any, T]
"""Calls one after another; each is answered by its reply, the last word is the result."""


def wait_before_retry(
    call: Call,
    tries: int,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    sent: bool = True,
) -> float | None:
    """Seconds to wait before sending a call again; None: do not.

    `status` None is a connection that failed, before the call was `sent` or after. A call that is not
    idempotent is sent again only where it cannot have been worked on.
    """
    told = headers or {}
    if tries >= MAX_TRIES or told.get("x-should-retry") == "false":
        return None
    if status is None:
        again = call.idempotent or not sent
    else:
        again = status == 429 or (status in (*_TRANSIENT, 500) and call.idempotent)
    if not again:
        return None
    asked = told.get("retry-after", "")
    if asked.replace(".", "", 1).isdigit():
        return min(float(asked), _LONGEST_WAIT_S)
    return min(_FIRST_WAIT_S * 2 ** (tries - 1), _LONGEST_WAIT_S) * random.uniform(0.75, 1.25)


def read_reply(call: Call, status: int, headers: Mapping[str, str], content: bytes) -> dict[str, Any]:
    """
    Raises:
        StropError: the reply is a failure, in the type that the server meant.
        UnavailableError: it is no reply of this API.
    """
    value = _json(content)
    if status != 200:
        raise failure(status, value, headers)
    if value is None:
        raise UnavailableError(
            msg("{method} {path}: the reply is no JSON object", method=call.method, path=call.path),
            fix=msg("check that the address is a Strop server's"),
        )
    if call.answer is None:
        return value
    answer = value.get(call.answer)
    if not isinstance(answer, dict):
        raise UnavailableError(
            msg(
                "{method} {path}: the reply has no {answer!r}",
                method=call.method,
                path=call.path,
                answer=call.answer,
            ),
            fix=msg("check that the address is a Strop server's, and update the older of the two"),
        )
    return cast("dict[str, Any]", answer)


def failure(status: int, value: Mapping[str, Any] | None, headers: Mapping[str, str]) -> StropError:
    """The error of a reply, with the server's message and its fix."""
    told = value or {}
    text = told.get("message") or told.get("detail") or f"the server replied with status {status}"
    message, _, fix = str(text).rpartition("\n  fix: ") if "\n  fix: " in str(text) else (str(text), "", "")
    kind = _ERROR_OF.get(status, RequestError if 400 <= status < 500 else UnavailableError)
    error = kind(message, fix=fix or None)
    error.http_status = status
    error.request_id = str(told.get("request_id") or headers.get("x-request-id") or "") or None
    return error


def unreachable(url: str, reason: str) -> UnavailableError:
    return UnavailableError(
        msg("the server at {url} cannot be reached: {reason}", url=url, reason=reason),
        fix=msg("start it with `strop up`, or check STROP_URL"),
    )


def typed(model: type[Model], value: object) -> Model:
    """
    Raises:
        UnavailableError: the server speaks another version of the API.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnavailableError(
            msg(
                "the reply is no {name}: {where}: {first}",
                name=model.__name__,
                where=where,
                first=first["msg"],
            ),
            fix=msg("update the older of client and server"),
        ) from error


def listed(model: type[Model], reply: Mapping[str, Any], key: str) -> Listed[Model]:
    """A page of things."""
    items = tuple(typed(model, one) for one in reply.get(key) or [])
    total = int(reply.get("total", len(items)))
    return Listed(
        items=items,
        total=total,
        page_no=int(reply.get("page_no", 1)),
        page_size=int(reply.get("page_size", total)),
    )


def without_empty(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what was not given."""
    return {
        key: value for key, value in values.items() if value is not None and value not in ("", [], {}, ())
    }


def _json(content: bytes) -> dict[str, Any] | None:
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
