"""A request -> the services its route works with, its caller, and the address it reached the server at."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from strop.schema.access import Caller
from strop.service.services import Services
from strop.service.settings import Settings


def services_of(request: Request) -> Services:
    return request.app.state.services


def caller_of_request(request: Request) -> Caller:
    """The caller that `RequestMiddleware` found; there is one on every guarded path."""
    return request.scope["state"]["caller"]


ServicesHere = Annotated[Services, Depends(services_of)]
CallerHere = Annotated[Caller, Depends(caller_of_request)]
"""Who calls; on guarded paths only."""


def public_url(request: Request, settings: Settings) -> str:
    """Where this client reaches the server, without a trailing slash."""
    return settings.public_url or str(request.base_url).rstrip("/")
