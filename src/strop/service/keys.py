"""API keys: whose a key is, and those of a workspace."""

from __future__ import annotations

import secrets

from strop.errors import ConflictError, RequestError
from strop.locales import msg
from strop.schema.access import DEFAULT_WORKSPACE, ApiKey, Caller
from strop.service.services import Services
from strop.store.keys import caller_of, create_key, list_keys, revoke_key

OWN = Caller(workspace_id=DEFAULT_WORKSPACE, key_id="own", key_name="local")
"""Who calls with the key of a private server."""


def caller_with(services: Services, key: str) -> Caller:
    """Raises AccessError: the key is not one of this server, or has been revoked."""
    own = services.settings.own_key
    if own is not None and secrets.compare_digest(key.encode(), own.encode()):
        return OWN
    with services.database.read() as session:
        return caller_of(session, key)


def list_of(services: Services, caller: Caller) -> list[ApiKey]:
    """The keys of the caller's workspace."""
    with services.database.read() as session:
        return list_keys(session, caller.workspace_id)


def create(services: Services, caller: Caller, name: str) -> str:
    """Make a key of the caller's workspace. Returns its text, which is kept nowhere.

    Raises:
        RequestError: the name is empty or cannot be printed. ConflictError: it is taken.
    """
    if not name.strip() or not name.isprintable():
        raise RequestError(msg("{name!r} cannot name a key", name=name), fix=msg("take 1 to 100 characters"))
    with services.database.write() as session:
        return create_key(session, caller.workspace_id, name.strip())[1]


def revoke(services: Services, caller: Caller, key_id: str) -> None:
    """End a key and its sessions at once.

    Raises:
        MissingError: no such key here. ConflictError: it is the one the caller signed in with.
    """
    if key_id == caller.key_id:
        raise ConflictError(
            msg("this is the key you signed in with"), fix=msg("sign in with another one first")
        )
    with services.database.write() as session:
        revoke_key(session, key_id, workspace_id=caller.workspace_id)
