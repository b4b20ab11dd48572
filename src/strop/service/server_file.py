"""A server -> the only one of its home, and a file there that tells commands where it listens."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from strop.errors import ConflictError, StoreError
from strop.locales import msg
from strop.processes.mark import this_process
from strop.store.home import SERVER_FILE

LOCK = "server.lock"
"""Held by the server that runs; its end, however it comes, frees it."""


@contextmanager
def sole_server(folder: Path) -> Generator[None]:
    """Be the home's only server while the block runs: two would supervise one queue and serve one table.

    Raises:
        ConflictError: one runs already. StoreError: the home cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(
            msg("cannot write below {folder!r}: {strerror}", folder=str(folder), strerror=error.strerror),
            fix=msg("set STROP_HOME to a folder that can be written"),
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConflictError(
                msg(
                    "a server of the home {folder!r} runs already{whose}",
                    folder=str(folder),
                    whose=_whose(folder),
                ),
                fix=msg(
                    "use that one, stop it, or give this one a home of its own: STROP_HOME=/another/folder"
                ),
            ) from None
        yield
    finally:
        os.close(lock)


def _whose(folder: Path) -> str:
    try:
        written = json.loads((folder / SERVER_FILE).read_bytes())
        return f" at {written['url']} (process {written['pid']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


@contextmanager
def written_down(folder: Path, url: str) -> Generator[None]:
    """Write the address down while the block runs.

    Raises:
        StoreError: the file cannot be written.
    """
    path = folder / SERVER_FILE
    text = json.dumps({"url": url, "pid": os.getpid(), "process": str(this_process())}) + "\n"
    part = path.with_name(f".{SERVER_FILE}.{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        raise StoreError(
            msg("the address cannot be written to {path!r}: {error}", path=str(path), error=error)
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # somebody took it away
            if path.read_text(encoding="utf-8") == text:
                path.unlink()
