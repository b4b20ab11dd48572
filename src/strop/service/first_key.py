"""A database without keys -> the first one, in a file that only its owner reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from strop.schema.access import DEFAULT_WORKSPACE
from strop.service.secret import write_private
from strop.store.database import Database
from strop.store.home import KEY_FILE
from strop.store.keys import create_key, ensure_workspace, list_keys

NAME = "first"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstKey:
    """Where the first key is; the file may have gone since. `key_id` is there when it was made just now."""

    path: Path
    key_id: str | None = None

    @property
    def made(self) -> bool:
        return self.key_id is not None

    @property
    def is_there(self) -> bool:
        return self.path.is_file()


def ensure_first_key(database: Database, folder: Path) -> FirstKey:
    """Make a key of the default workspace if there has never been one.

    Raises:
        StoreError: the file cannot be written; no key has been made then.
    """
    path = folder / KEY_FILE
    with database.write() as session:
        if list_keys(session):
            return FirstKey(path=path)
        workspace = ensure_workspace(session, DEFAULT_WORKSPACE)
        key, text = create_key(session, workspace.workspace_id, NAME)
        path.unlink(missing_ok=True)  # of another database in this home
        write_private(path, text)
    return FirstKey(path=path, key_id=key.key_id)
