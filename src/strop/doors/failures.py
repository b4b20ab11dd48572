"""Every way in which a request can fail -> JSON in the form that the clients of its path read.

That is DashScope's `{"request_id", "code", "message"}`, and `{"error": {...}}` on OpenAI's paths. Statuses
below 500 other than 429 tell clients not to try the same again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from strop.errors import AccessError, ForbiddenError, StropError, ThrottledError
from strop.locales import accepted_language, rendered

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


def request_id(request: Request) -> str:
    return str(request.scope.get("state", {}).get("request_id", ""))


def failure(path: str, identity: str, status: int, message: str, *, code: str | None = None) -> Response:
    """A failure in the form of the path's clients."""
    named = code or CODES.get(status, CODES[400] if status < 500 else CODES[500])
    if path.startswith(OPENAI_PATHS):
        kind = "invalid_request_error" if status < 500 else "server_error"
        error = {"message": message, "type": kind, "param": None, "code": named}
        response = json_reply({"error": error, "request_id": identity}, status)
    else:
        response = json_reply({"request_id": identity, "code": named, "message": message}, status)
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
        language = accepted_language(request.headers.get("accept-language", ""))
        message = str(rendered(error.told, language))
        response = failure(request.url.path, request_id(request), status, message, code=code)
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


def json_reply(value: Mapping[str, Any], status: int) -> JSONResponse:
    return _Json(value, status_code=status)


class _Json(JSONResponse):
    """Lone surrogates, which clients may send in names, do not end the reply."""

    def render(self, content: Any) -> bytes:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")
