"""Template and values -> a page in the reader's language, with everything escaped."""

from __future__ import annotations

import hashlib
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse

from strop import __version__
from strop.console import words
from strop.console.words import Say, language_of, say_in, theme_of
from strop.locales import msg, rendered

HERE = Path(__file__).parent
STATIC = HERE / "static"
BASE = "/console"
"""Where the pages lie."""

HOME = f"{BASE}/jobs"
"""The first of them, to which `/` leads."""

LARGEST = 2**63 - 1
"""The largest number that a database takes; what an address asks for may be larger."""

STATUS_WORDS = {
    "PENDING": msg("pending"),
    "QUEUING": msg("queuing"),
    "RUNNING": msg("running"),
    "SUSPENDED": msg("suspended"),
    "CANCELING": msg("canceling"),
    "SUCCEEDED": msg("succeeded"),
    "FAILED": msg("failed"),
    "CANCELED": msg("canceled"),
    "DEPLOYING": msg("deploying"),
    "DELETING": msg("deleting"),
    "success": msg("success"),
    "failed": msg("failed"),
    "starting": msg("starting"),
    "active": msg("active"),
    "deleted": msg("deleted"),
    "BUILDING": msg("building"),
    "SUCCESS": msg("success"),
}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = environment.filters  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    filters |= {
        "number": words.number,
        "percent": words.percent,
        "size": words.size,
        "moment": words.moment,
        "pretty": words.pretty,
        "broken": words.broken,
    }
    shared: dict[str, Any] = environment.globals  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    shared.update(base=BASE, static=static_url, version=__version__)
    return environment


@cache
def static_url(name: str) -> str:
    """The address of a file below `static/`; it changes with the content, so that browsers may keep it."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"{BASE}/static/{name}?v={digest}"


def page(request: Request, template: str, *, http_status: int = 200, **values: Any) -> HTMLResponse:
    """Raises:
    jinja2.UndefinedError: the template names something that was not given.
    """
    language = language_of(request)
    say = say_in(language)
    state: dict[str, Any] = request.scope.get("state", {})
    path = request.url.path
    query = f"?{request.url.query}" if request.url.query else ""
    made = _environment().get_template(template)
    text = made.render(
        t=say,
        language=language,
        theme=theme_of(request),
        address=path + query,
        path=path,
        caller=state.get("caller"),
        csrf=state.get("csrf", ""),
        duration=partial(words.duration, say=say),
        near=partial(words.shortened, home=request.app.state.services.settings.home),
        status_word=partial(status_word, language=language),
        **values,
    )
    # A model may say half a character, "\ud800": no Unicode, and no reason to show nothing of the page.
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=http_status)


def status_word(status: str, language: str) -> str:
    return str(rendered(STATUS_WORDS.get(status, status.lower()), language))


def say_for(request: Request) -> Say:
    return say_in(language_of(request))
