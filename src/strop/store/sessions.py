"""Sessions of browsers: a random token -> the key that signed in. Only a hash of the token is kept."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta

from sqlalchemy import ForeignKey, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.schema.access import Caller
from strop.store.columns import UtcTime, Written
from strop.store.keys import ApiKeyRow
from strop.store.tables import Base

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


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
