"""Bytes of a body -> JSON that means one thing, or a whole form; else a 400 that says where it is not.

Python's own reader accepts a name that is used twice (the last one wins), NaN, and nesting that breaks what
walks it later; that of forms accepts one that was cut off. Every route below `/api/v1` goes through here.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, cast

from fastapi import Request
from fastapi.routing import APIRoute
from python_multipart.multipart import parse_options_header
from starlette.exceptions import HTTPException
from starlette.responses import Response

from strop.errors import RequestError
from strop.locales import msg

MAX_DEPTH = 64
_AFTER_END_BYTES = 4096
"""A form may say something behind its end; nobody does."""

MAX_VALUES = 100_000
"""In one body; the largest job that means something has a few hundred."""


class JsonRoute(APIRoute):
    """A route whose JSON body is read by `read_json`, and whose form has its end."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_json = self.body_field is not None

        async def handle_strictly(request: Request) -> Response:
            if takes_json:
                _check_type(request)
            return await handle(_Strict(request.scope, request.receive))

        return handle_strictly


class _Strict(Request):
    async def stream(self) -> AsyncGenerator[bytes]:
        kind, options = parse_options_header(self.headers.get("content-type"))
        if kind != b"multipart/form-data":
            async for chunk in super().stream():
                yield chunk
            return
        end, tail = b"--" + options.get(b"boundary", b"") + b"--", b""
        async for chunk in super().stream():
            tail = (tail + chunk)[-len(end) - _AFTER_END_BYTES :]
            yield chunk
        if end not in tail:
            raise RequestError(msg("the form ends before its last boundary"), fix=msg("send it again, whole"))

    async def json(self) -> Any:
        try:
            return read_json(await self.body())
        except RequestError as error:  # FastAPI keeps the words of no other error
            raise HTTPException(400, str(error)) from error


def read_json(body: bytes) -> Any:
    """Raises:
    RequestError: not JSON; a name that stands twice, NaN, half a character, NUL; too deep or too much.

    >>> read_json(b'{"a": [1, null]}')
    {'a': [1, None]}
    """
    try:
        value = json.loads(body, object_pairs_hook=_once, parse_constant=_refuse)
    except RecursionError:
        raise RequestError(
            msg("the body is nested deeper than {max_depth} levels", max_depth=MAX_DEPTH),
            fix=msg("flatten it"),
        ) from None
    except UnicodeDecodeError as error:
        raise RequestError(
            msg("the body is not UTF-8: {reason} at byte {start}", reason=error.reason, start=error.start),
            fix=msg("send it as UTF-8"),
        ) from None
    except ValueError as error:  # of JSON, or of a number with thousands of digits
        raise RequestError(
            msg("the body is not JSON: {error}", error=error), fix=msg("send one JSON object")
        ) from None
    _walk(value)
    return value


def _check_type(request: Request) -> None:
    given = request.headers.get("content-type", "")
    essence = given.partition(";")[0].strip().lower()
    length = request.headers.get("content-length", "0")
    if length == "0" and "transfer-encoding" not in request.headers:
        return  # without a body the route says what is missing
    if essence != "application/json" and not (
        essence.startswith("application/") and essence.endswith("+json")
    ):
        raise RequestError(
            msg("content-type: found {given!r}, expected application/json", given=given[:100]),
            fix=msg("send the body as JSON with the header content-type: application/json"),
        )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise RequestError(
            msg("the name {twice!r} is used twice in one object", twice=twice[:100]), fix=msg("write it once")
        )
    return found


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


def _walk(value: Any) -> None:
    """Look at every value, without recursion."""
    todo: list[tuple[str, int, Any]] = [("", 0, value)]
    num_values = 0
    while todo:
        place, depth, one = todo.pop()
        num_values += 1
        if depth > MAX_DEPTH or num_values > MAX_VALUES:
            what = f"nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"{MAX_VALUES} values"
            raise RequestError(
                msg(
                    "{value}: more than this server accepts: {what}",
                    value=place[:200] or "the body",
                    what=what,
                ),
                fix=msg("send less"),
            )
        if isinstance(one, dict):
            for name, item in cast("dict[str, Any]", one).items():
                _check_text(f"{place}.{name}" if place else name, name)
                todo.append((f"{place}.{name}" if place else name, depth + 1, item))
        elif isinstance(one, list):
            items = cast("list[Any]", one)
            todo.extend((f"{place}[{index}]", depth + 1, item) for index, item in enumerate(items))
        elif isinstance(one, str):
            _check_text(place, one)
        elif isinstance(one, float) and not math.isfinite(one):
            raise RequestError(
                msg("{printable}: a number too large", printable=_printable(place)),
                fix=msg("write less than 1e308"),
            )


def _check_text(place: str, text: str) -> None:
    """No file, process or database can hold these."""
    if "\0" in text:
        raise RequestError(
            msg("{printable}: contains a NUL character", printable=_printable(place)), fix=msg("leave it out")
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            msg(
                "{printable}: half a character at {start}: a lone surrogate",
                printable=_printable(place),
                start=error.start,
            ),
            fix=msg("send the text as UTF-8"),
        ) from None


def _printable(place: str) -> str:
    return ascii(place[:200])[1:-1] or "the body"
