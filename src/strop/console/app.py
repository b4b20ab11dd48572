"""Services -> the console as an app of its own below `/console`, and `/` that leads there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Sequence

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strop.console import (
    access,
    files_pages,
    functions_pages,
    job_details,
    job_logs,
    job_metrics,
    job_output,
    job_tracing,
    job_trajectories,
    jobs,
    keys_pages,
    serving_pages,
)
from strop.console.access import Link, SignedIn, SignInNeeded, sign_in_url
from strop.console.pages import BASE, HOME, STATIC, page
from strop.console.requests import wrong_fields
from strop.console.words import language_of
from strop.errors import StropError
from strop.locales import msg, rendered
from strop.schema.access import Caller
from strop.service.services import Services

_log = logging.getLogger(__name__)

ROUTERS: Sequence[APIRouter] = (
    jobs.router,
    job_metrics.router,
    job_trajectories.router,
    job_tracing.router,
    job_logs.router,
    job_output.router,
    job_details.router,
    functions_pages.router,
    files_pages.router,
    serving_pages.router,
    keys_pages.router,
)
"""Pages by noun; all of them need a session."""

Ask = Callable[[Request, Services, Caller], Awaitable[Response]]
"""A call to a deployed model, with who makes it -> the model's answer."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""No script or style but from our own files: what a model wrote does nothing even if it were not escaped."""

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Console:
    """The mounted console. `sign_in_link` makes an address that signs in once, in place of the last one."""

    def __init__(self, app: FastAPI) -> None:
        self._link = Link()
        app.state.link = self._link

    def sign_in_link(self, url: str, key_id: str) -> str:
        return f"{url}{BASE}/sign-in?link={self._link.make(key_id)}"


def mount_console(app: FastAPI, services: Services, *, ask: Ask) -> Console:
    """Put the console's pages into the control plane. `ask` answers a call to a deployed model as the API of
    this server does."""
    inner = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    inner.state.services = services
    inner.state.ask = ask
    inner.state.checking = threading.Lock()
    console = Console(inner)
    inner.mount("/static", _Kept(StaticFiles(directory=STATIC)))
    inner.include_router(access.router)
    for router in ROUTERS:
        inner.include_router(router, dependencies=[SignedIn], include_in_schema=False)
    _install_failures(inner)
    inner.add_middleware(_Headers)

    def first_page() -> Response:
        return RedirectResponse(HOME, status_code=303)

    inner.add_api_route("/", first_page)
    for path in ("/", BASE):
        app.add_api_route(path, first_page, include_in_schema=False)
    app.mount(BASE, inner)
    return console


class _Headers:
    """Says on every reply what a page may load; pages are kept by nobody."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                message["headers"] += [(key.encode(), value.encode()) for key, value in _HEADERS.items()]
                if b"cache-control" not in names:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        await self._app(scope, receive, sending)


class _Kept:
    """Files that never change under their address."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                kept = b"public, max-age=31536000, immutable"
                message["headers"] = [*message["headers"], (b"cache-control", kept)]
            await send(message)

        await self._app(scope, receive, sending)


def _install_failures(app: FastAPI) -> None:
    def sign_in_needed(request: Request, error: Exception) -> Response:
        assert isinstance(error, SignInNeeded)
        url = sign_in_url(error.back)
        if request.headers.get("hx-request"):
            return Response(status_code=401, headers={"hx-redirect": url})
        if "text/html" in request.headers.get("accept", "text/html"):
            return RedirectResponse(url, status_code=303)
        return Response("sign in first", status_code=401)

    def strop_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, StropError)
        if error.http_status >= 500:
            _log.error("%s %s failed: %s", request.method, request.url.path, error)
        return _failed(request, error.http_status, error.message, error.fix)

    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _failed(request, 400, wrong_fields(error), None)

    def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _failed(request, error.status_code, str(error.detail), None)

    def unexpected(request: Request, error: Exception) -> Response:
        return _failed(request, 500, type(error).__name__, msg("see the server's log"))

    app.add_exception_handler(Exception, unexpected)
    app.add_exception_handler(SignInNeeded, sign_in_needed)
    app.add_exception_handler(StropError, strop_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)


def _failed(request: Request, status: int, message: str, fix: str | None) -> Response:
    template = "_error.html" if request.headers.get("hx-request") else "error.html"
    language = language_of(request)
    text, remedy = rendered(message, language), rendered(fix, language)
    return page(request, template, http_status=status, code=status, message=text, fix=remedy)
