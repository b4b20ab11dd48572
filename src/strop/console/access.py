"""Key or one-time link -> a session in a cookie; every other page asks here who comes.

The cookie is HttpOnly and SameSite=Strict and holds a random token of which the store has the hash. A form
that changes something carries a token made of the session, and must come from this very origin.
"""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from strop.console.pages import BASE, HOME, page
from strop.console.requests import ServicesHere
from strop.console.words import LANGUAGE_COOKIE, THEME_COOKIE, THEMES, language_of
from strop.errors import AccessError, ForbiddenError
from strop.locales import languages, msg, rendered
from strop.schema.access import Caller
from strop.service.services import Services
from strop.store.database import Database
from strop.store.keys import LIFE, caller_in_session, caller_of, close_session, open_session

COOKIE = "strop_session"
LINK_LIFE_S = 3600.0
_PURPOSE = "csrf"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

router = APIRouter(include_in_schema=False)


class SignInNeeded(Exception):
    """Nobody has signed in here; `back` is where to go afterwards."""

    def __init__(self, back: str) -> None:
        super().__init__("sign in first")
        self.back = back


class Link:
    """A token that signs in once, within an hour of being made; held in memory only."""

    def __init__(self) -> None:
        self._token = ""
        self._key_id = ""
        self._until = 0.0

    def make(self, key_id: str) -> str:
        self._token, self._key_id = secrets.token_urlsafe(32), key_id
        self._until = time.monotonic() + LINK_LIFE_S
        return self._token

    def take(self, token: str) -> str | None:
        """The key that the link stands for, once."""
        held, self._token = self._token, self._token
        if not held or time.monotonic() > self._until:
            return None
        if not secrets.compare_digest(token.encode("utf-8", "replace"), held.encode()):
            return None
        self._token = ""
        return self._key_id


async def signed_in(request: Request, services: ServicesHere) -> None:
    """Raises:
    SignInNeeded: no living session. ForbiddenError: a change that no form of this session asked for.
    """
    token = request.cookies.get(COOKIE, "")
    caller = await run_in_threadpool(_caller, services.database, token) if token else None
    if caller is None:
        asked = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        raise SignInNeeded(asked if request.method == "GET" else HOME)
    state = request.scope.setdefault("state", {})
    state["caller"], state["csrf"] = caller, services.signer.token(_PURPOSE, token)
    if request.method not in _SAFE:
        check_origin(request, services.settings.public_url)
        given = request.headers.get("x-csrf-token") or str((await request.form()).get("csrf", ""))
        if not services.signer.holds(given, _PURPOSE, token):
            raise ForbiddenError(
                msg("this form does not belong to your session"), fix=msg("load the page again and repeat")
            )


SignedIn = Depends(signed_in)


def check_origin(request: Request, public_url: str | None) -> None:
    """Browsers say where a form stood; one that stood elsewhere is refused.

    `public_url` counts as here, too: a proxy before the server may put a host of its own in the request.

    Raises:
        ForbiddenError: it did.
    """
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    here = {request.headers.get("host"), _host(public_url) if public_url else None}
    elsewhere = origin is not None and origin.partition("://")[2] not in here
    if elsewhere or site not in ("same-origin", "none"):
        raise ForbiddenError(
            msg("this form was sent from another site"), fix=msg("use the forms of this console")
        )


def _host(url: str) -> str:
    """With its port where the scheme has another, as browsers write it in an origin.

    >>> _host("https://Strop.example.com:443/x"), _host("http://[::1]:8080")
    ('strop.example.com', '[::1]:8080')
    """
    scheme, _, rest = url.lower().partition("://")
    return rest.partition("/")[0].removesuffix(":80" if scheme == "http" else ":443")


@router.get("/sign-in")
def sign_in_page(
    request: Request,
    back: Annotated[str, Query(max_length=2000)] = HOME,
    link: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """A link only fills the form in: a program that merely looks at an address uses nothing up."""
    return page(request, "sign_in.html", back=local(back), link=link, problem="")


@router.post("/sign-in")
async def sign_in(request: Request, services: ServicesHere) -> Response:
    check_origin(request, services.settings.public_url)
    form = await request.form()
    key, link = str(form.get("key", "")).strip(), str(form.get("link", ""))
    back = local(str(form.get("back", HOME)))
    try:
        token = await run_in_threadpool(_open, services, request.app.state.link, key, link)
    except AccessError as error:
        problem = rendered(error.message, language_of(request))
        return page(request, "sign_in.html", http_status=401, back=back, link="", problem=problem)
    response = RedirectResponse(back, status_code=303)
    life_s = int(LIFE.total_seconds())
    response.set_cookie(COOKIE, token, max_age=life_s, path="/", **_cookie(request))
    return response


@router.post("/sign-out", dependencies=[SignedIn])
def sign_out(request: Request, services: ServicesHere) -> Response:
    with services.database.write() as session:
        close_session(session, request.cookies.get(COOKIE, ""))
    response = RedirectResponse(f"{BASE}/sign-in", status_code=303)
    response.delete_cookie(COOKIE, path="/", **_cookie(request))
    return response


@router.get("/look")
def choose_look(
    language: Annotated[str | None, Query()] = None,
    theme: Annotated[str | None, Query()] = None,
    back: Annotated[str, Query(max_length=2000)] = HOME,
) -> Response:
    """How pages look in this browser: nothing that anybody else could gain from changing."""
    response = RedirectResponse(local(back), status_code=303)
    for name, value, known in ((LANGUAGE_COOKIE, language, languages()), (THEME_COOKIE, theme, THEMES)):
        if value in known:
            response.set_cookie(name, value or "", max_age=10**8, path="/", samesite="lax")
    return response


def local(back: str) -> str:
    """A page of the console, whatever an address asks for.

    >>> local("/console/jobs?x=1"), local("https://elsewhere"), local("//elsewhere/console")
    ('/console/jobs?x=1', '/console/jobs', '/console/jobs')
    """
    fine = back.startswith(BASE) and back.isprintable() and "\\" not in back
    return back if fine and back[len(BASE) : len(BASE) + 1] in ("", "/", "?") else HOME


def sign_in_url(back: str) -> str:
    return f"{BASE}/sign-in?back={quote(back, safe='')}"


def _cookie(request: Request) -> dict[str, Any]:
    return {"httponly": True, "samesite": "strict", "secure": request.url.scheme == "https"}


def _caller(database: Database, token: str) -> Caller | None:
    with database.read() as session:
        return caller_in_session(session, token)


def _open(services: Services, held: Link, key: str, link: str) -> str:
    key_id = held.take(link) if link else None
    if link and key_id is None:
        raise AccessError(msg("this link has been used or is too old; sign in with an API key"))
    with services.database.write() as session:
        if key_id is None:
            key_id = caller_of(session, key).key_id
        return open_session(session, key_id)
