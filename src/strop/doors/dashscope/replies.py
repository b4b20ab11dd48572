"""Values and failures -> the JSON that DashScope's clients accept; OpenAI's form on OpenAI's paths.

Success is always HTTP 200 with `request_id` and `output` (or `data`, for files), without a top-level `code`.
Failures are `{"request_id", "code", "message"}`; 4xx tell clients not to try the same again.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from strop.bilingual import accepted_language
from strop.errors import AccessError, ForbiddenError, StropError, ThrottledError

_log = logging.getLogger(__name__)

CODES = {
    400: "InvalidParameter",
    401: "InvalidApiKey",
    403: "AccessDenied",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "Conflict",
    413: "PayloadTooLarge",
    422: "InvalidParameter",
    429: "Throttling",
    500: "InternalError",
    502: "ServiceUnavailable",
    503: "ServiceUnavailable",
    504: "GatewayTimeout",
}
OPENAI_PATHS = ("/v1/", "/compatible-mode/")


def language_of(request: Request) -> str:
    """Of the sentences in an answer: what is noted of a job, and why it failed."""
    return accepted_language(request.headers.get("accept-language", ""))


def output(request: Request, value: Mapping[str, Any], *, key: str = "output") -> Response:
    """A success: `value` without its nulls under `output`, which is never null itself."""
    return _json({"request_id": request_id(request), key: without_nulls(value)}, 200)


def without_nulls(value: Any) -> Any:
    """Leave out every null in a dict: clients fail on a null list. NaN, which JSON lacks, is left out too.

    >>> without_nulls({"a": None, "b": [{"c": None, "d": 1}]})
    {'b': [{'d': 1}]}
    """
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {str(key): without_nulls(item) for key, item in pairs if not _absent(item)}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [without_nulls(item) for item in cast("Sequence[Any]", value)]
    return value


def request_id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


def failure(path: str, identity: str, status: int, message: str, *, code: str | None = None) -> Response:
    """A failure in the form of the path's clients."""
    named = code or CODES.get(status, CODES[400] if status < 500 else CODES[500])
    if path.startswith(OPENAI_PATHS):
        kind = "invalid_request_error" if status < 500 else "server_error"
        error = {"message": message, "type": kind, "param": None, "code": named}
        response = _json({"error": error, "request_id": identity}, status)
    else:
        response = _json({"request_id": identity, "code": named, "message": message}, status)
    if status < 500 and status != 429:
        response.headers["x-should-retry"] = "false"
    return response


def install_failures(app: FastAPI) -> None:
    """Every way in which a request can fail ends in `failure`."""

    def strop_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, StropError)
        status = error.http_status
        if status >= 500:
            _log.error("%s %s failed: %s", request.method, request.url.path, error)
        code = "Throttling.RateQuota" if isinstance(error, ThrottledError) else None
        response = failure(request.url.path, request_id(request), status, str(error), code=code)
        if isinstance(error, AccessError) and not isinstance(error, ForbiddenError):
            response.headers["www-authenticate"] = "Bearer"
        return response

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return failure(request.url.path, request_id(request), 400, validation_message(error))

    def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = request.url.path
        if error.status_code == 404 and error.detail == "Not Found":
            message = f"no route {request.method} {path}"
        elif error.status_code == 405:
            message = f"{request.method} is not allowed on {path}"
        else:
            message = str(error.detail)
        response = failure(path, request_id(request), error.status_code, message)
        for name, value in (error.headers or {}).items():
            response.headers[name] = value
        return response

    app.add_exception_handler(StropError, strop_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)


def validation_message(error: RequestValidationError) -> str:
    """Every wrong field, without repeating what was sent: it may hold secrets."""
    sentences: list[str] = []
    for detail in error.errors():
        place = ".".join(str(part) for part in detail["loc"][1:]) or str(detail["loc"][0])
        sentences.append(f"{place}: {str(detail['msg']).removeprefix('Value error, ')}")
    return "; ".join(sentences)


def _absent(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def _json(value: Mapping[str, Any], status: int) -> JSONResponse:
    return _Json(value, status_code=status)


class _Json(JSONResponse):
    """Lone surrogates, which clients may send in names, do not end the reply."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")
