"""A home that a killed server left -> without what it had half-written: uploads, zips, environments.

Nothing refers to these: what is whole has another name.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Generator
from pathlib import Path

from strop.errors import MissingError
from strop.store.blobs import Blobs
from strop.store.database import Database
from strop.store.jobs import get_job

_log = logging.getLogger(__name__)

OLD_S = 24 * 3600.0
"""Whoever still writes has touched it since."""


def clear_leftovers(home: Path, blobs: Blobs, database: Database) -> int:
    """Remove what has lain for a day. Returns how many files and folders that were."""
    horizon = time.time() - OLD_S
    removed = 0
    for path in _parts(home, blobs, database):
        try:
            if path.lstat().st_mtime > horizon:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
            removed += 1
        except OSError as error:
            _log.warning("%s is left over and cannot be removed: %s", path, error)
    return removed


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _is_job(database: Database, job_id: str) -> bool:
    with database.read() as session:
        try:
            get_job(session, job_id)
        except MissingError:
            return False
    return True


def _parts(home: Path, blobs: Blobs, database: Database) -> Generator[Path]:
    yield from (home / "arriving").glob("*")
    yield from (home / "bundles").glob(".*")
    yield from (home / "layers").glob(".*")
    # A job that was being checked, and never came to be; one that waits in the queue looks the same on disk.
    for folder in (home / "jobs").glob("*"):
        if _names(folder) == {"data"} and not _is_job(database, folder.name):
            yield folder
    if blobs.parts_folder is not None:
        yield from blobs.parts_folder.glob("*")
        yield from (blobs.parts_folder.parent / "arriving").glob("*")
