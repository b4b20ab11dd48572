"""Who calls: workspaces that do not see each other's things, and the keys that open them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict

DEFAULT_WORKSPACE = "default"
"""Made with the database. What `strop run` records on this machine belongs to it."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Workspace(_Record):
    workspace_id: str
    name: str
    created_at: datetime


class ApiKey(_Record):
    """A key as everybody may see it; its text is known only to whoever was given it."""

    key_id: str
    workspace_id: str
    name: str
    created_at: datetime
    revoked_at: datetime | None = None


class Caller(_Record):
    """Whose request it is, once its key has been checked."""

    workspace_id: str
    key_id: str
    key_name: str
