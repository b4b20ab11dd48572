"""API keys, the workspaces they belong to, and browser sessions: a secret text -> whose it is.

Only hashes of the texts are kept. Each has 256 random bits, so that a plain SHA-256 is as safe as a slow
hash of a password.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta

from sqlalchemy import ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import AccessError, ConflictError, MissingError
from strop.locales import msg
from strop.schema.access import ApiKey, Caller, Workspace
from strop.store.columns import UtcTime, Written
from strop.store.tables import Base

PREFIX = "sk-strop-"


class WorkspaceRow(Base):
    __tablename__ = "workspaces"

    workspace_id: Mapped[str] = mapped_column(Written, primary_key=True)
    name: Mapped[str] = mapped_column(Written, unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def workspace(self) -> Workspace:
        return Workspace(workspace_id=self.workspace_id, name=self.name, created_at=self.created_at)


class ApiKeyRow(Base):
    __tablename__ = "api_keys"

    key_id: Mapped[str] = mapped_column(Written, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Written, ForeignKey("workspaces.workspace_id"))
    name: Mapped[str] = mapped_column(Written)
    digest: Mapped[str] = mapped_column(Written, unique=True)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcTime)

    def key(self) -> ApiKey:
        return ApiKey(
            key_id=self.key_id,
            workspace_id=self.workspace_id,
            name=self.name,
            created_at=self.created_at,
            revoked_at=self.revoked_at,
        )


def ensure_workspace(session: Session, name: str) -> Workspace:
    """The workspace of that name, created where it does not exist. The id of `default` is its name."""
    row = session.scalars(select(WorkspaceRow).where(WorkspaceRow.name == name)).first()
    if row is None:
        row = WorkspaceRow(workspace_id=_workspace_id(name), name=name, created_at=datetime.now(UTC))
        session.add(row)
        session.flush()
    return row.workspace()


def list_workspaces(session: Session) -> list[Workspace]:
    return [row.workspace() for row in session.scalars(select(WorkspaceRow).order_by(WorkspaceRow.name))]


def create_key(session: Session, workspace_id: str, name: str) -> tuple[ApiKey, str]:
    """Make a key. Returns it and its text, which cannot be had again.

    Raises:
        ConflictError: the workspace has a living key of that name.
    """
    if any(key.name == name for key in list_keys(session, workspace_id) if key.revoked_at is None):
        raise ConflictError(
            msg("a key named {name!r} exists already", name=name),
            fix=msg("choose another name, or revoke that one"),
        )
    text = PREFIX + secrets.token_urlsafe(32)
    row = ApiKeyRow(
        key_id=f"key-{secrets.token_hex(8)}",
        workspace_id=workspace_id,
        name=name,
        digest=_digest(text),
        created_at=datetime.now(UTC),
        revoked_at=None,
    )
    session.add(row)
    session.flush()
    return row.key(), text


def list_keys(session: Session, workspace_id: str | None = None) -> list[ApiKey]:
    """Oldest first, revoked ones too."""
    query = select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.key_id)
    if workspace_id is not None:
        query = query.where(ApiKeyRow.workspace_id == workspace_id)
    return [row.key() for row in session.scalars(query)]


def revoke_key(session: Session, key_id: str, *, workspace_id: str | None = None) -> ApiKey:
    """End a key for good; harmless when it has ended.

    Raises:
        MissingError: no such key in that workspace.
    """
    row = session.get(ApiKeyRow, key_id)
    if row is None or workspace_id not in (None, row.workspace_id):
        raise MissingError(
            msg("no key {key_id!r}", key_id=key_id), fix=msg("list the keys and take an id from there")
        )
    row.revoked_at = row.revoked_at or datetime.now(UTC)
    session.flush()
    return row.key()


def caller_of(session: Session, text: str) -> Caller:
    """Raises:
    AccessError: no living key has that text.
    """
    row = session.scalars(select(ApiKeyRow).where(ApiKeyRow.digest == _digest(text))).first()
    if row is None or row.revoked_at is not None:
        message = (
            msg("the API key has been revoked")
            if row is not None
            else msg("the API key does not belong to this server")
        )
        raise AccessError(message, fix=msg("set DASHSCOPE_API_KEY to a key that `strop keys` made"))
    return Caller(workspace_id=row.workspace_id, key_id=row.key_id, key_name=row.name)


LIFE = timedelta(days=30)
"""How long a sign-in holds."""


class SessionRow(Base):
    __tablename__ = "sessions"

    digest: Mapped[str] = mapped_column(Written, primary_key=True)
    key_id: Mapped[str] = mapped_column(Written, ForeignKey("api_keys.key_id", ondelete="CASCADE"))
    expires_at: Mapped[datetime] = mapped_column(UtcTime)


def open_session(session: Session, key_id: str) -> str:
    """Begin a session of that key. Returns its token, which cannot be had again.

    Side effects:
        Sessions that have run out are removed.
    """
    session.execute(delete(SessionRow).where(SessionRow.expires_at < datetime.now(UTC)))
    token = secrets.token_urlsafe(32)
    session.add(SessionRow(digest=_digest(token), key_id=key_id, expires_at=datetime.now(UTC) + LIFE))
    return token


def caller_in_session(session: Session, token: str) -> Caller | None:
    """Whose session it is; None where it has ended, or its key was revoked."""
    query = (
        select(ApiKeyRow, SessionRow.expires_at)
        .join(SessionRow, SessionRow.key_id == ApiKeyRow.key_id)
        .where(SessionRow.digest == _digest(token))
    )
    found = session.execute(query).first()
    if found is None or found[0].revoked_at is not None or found[1] < datetime.now(UTC):
        return None
    key = found[0]
    return Caller(workspace_id=key.workspace_id, key_id=key.key_id, key_name=key.name)


def close_session(session: Session, token: str) -> None:
    """End a session; harmless when it has ended."""
    session.execute(delete(SessionRow).where(SessionRow.digest == _digest(token)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _workspace_id(name: str) -> str:
    return name if name == "default" else f"ws-{secrets.token_hex(8)}"
