"""A server that listens -> a file in its home that tells the commands and scripts of this machine where."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from strop.errors import StoreError
from strop.store.home import SERVER_FILE
from strop.store.processes import this_process


@contextmanager
def written_down(folder: Path, url: str) -> Generator[None]:
    """Write the address down while the block runs. Of two servers in one home the last one is found.

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
        raise StoreError(f"the address cannot be written to {str(path)!r}: {error}") from error
    try:
        yield
    finally:
        with suppress(OSError):  # somebody took it away
            if path.read_text(encoding="utf-8") == text:
                path.unlink()
