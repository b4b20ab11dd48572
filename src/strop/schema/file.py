"""An uploaded file: what it is called, what it holds, and the hash under which the blob store keeps it."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class StoredFile(BaseModel):
    """Equal contents share one blob, named by `sha256`. DashScope's clients show `md5`."""

    model_config = ConfigDict(frozen=True)

    file_id: str
    workspace_id: str
    name: str
    description: str = ""
    purpose: str = "fine-tune"
    size: int
    sha256: str
    md5: str
    created_at: datetime
