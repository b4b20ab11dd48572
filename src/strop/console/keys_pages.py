"""API keys of the workspace: a new one is shown once; a revoked one ends at once, its sessions too."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from starlette.responses import RedirectResponse, Response

from strop.console.pages import BASE, page
from strop.console.requests import CallerHere, ServicesHere
from strop.errors import ConflictError, RequestError
from strop.service.services import Services
from strop.store.keys import create_key, list_keys, revoke_key

router = APIRouter()


@router.get("/keys")
def keys_page(request: Request, services: ServicesHere, caller: CallerHere) -> Response:
    return _page(request, services, caller, None)


@router.post("/keys")
def create(
    request: Request, services: ServicesHere, caller: CallerHere, name: Annotated[str, Form(max_length=100)]
) -> Response:
    if not name.strip() or not name.isprintable():
        raise RequestError(f"{name!r} cannot name a key", fix="take 1 to 100 characters")
    with services.database.write() as session:
        _, text = create_key(session, caller.workspace_id, name.strip())
    return _page(request, services, caller, text)


@router.post("/keys/{key_id}/revoke")
def revoke(request: Request, services: ServicesHere, caller: CallerHere, key_id: str) -> Response:
    if key_id == caller.key_id:
        raise ConflictError("this is the key you signed in with", fix="sign in with another one first")
    with services.database.write() as session:
        revoke_key(session, key_id, workspace_id=caller.workspace_id)
    return RedirectResponse(f"{BASE}/keys", status_code=303)


def _page(request: Request, services: Services, caller: CallerHere, made: str | None) -> Response:
    with services.database.read() as session:
        keys = list_keys(session, caller.workspace_id)
    return page(request, "keys.html", keys=keys, made=made)
