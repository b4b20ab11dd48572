"""API keys of the workspace: a new one is shown once; a revoked one ends at once, its sessions too."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from strop.console.pages import BASE, page
from strop.console.requests import CallerHere, ServicesHere
from strop.service import keys
from strop.service.services import Services

router = APIRouter()


@router.get("/keys")
def keys_page(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    return _page(request, services, caller, None)


@router.post("/keys")
def create(
    request: Request, services: ServicesHere, caller: CallerHere, name: Annotated[str, Form(max_length=100)]
) -> Response:
    return _page(request, services, caller, keys.create(services, caller, name))


@router.post("/keys/{key_id}/revoke")
def revoke(request: Request, services: ServicesHere, caller: CallerHere, key_id: str) -> Response:
    keys.revoke(services, caller, key_id)
    return RedirectResponse(f"{BASE}/keys", status_code=303)


def _page(request: Request, services: Services, caller: CallerHere, made: str | None) -> Response:
    return page(request, "keys.html", keys=keys.list_of(services, caller), made=made)
