"""Files: uploads of rows. Contents go to the blob store by hash; no client's name becomes a path."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath, PureWindowsPath

from strop.errors import RequestError
from strop.locales import msg
from strop.schema.access import Caller
from strop.schema.file import StoredFile
from strop.service.services import Services
from strop.store.files import forget_file, get_file, is_held, numbered_files, record_file

MAX_NAME_BYTES = 200
"""Disks take 255; a job puts a number before it."""

MAX_DESCRIPTION = 4096
PURPOSES = ("fine-tune", "fine_tune", "assistants", "file-extract", "batch", "evaluation")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFile:
    """A file as it arrives: a name as its client wrote it, and its bytes piece by piece."""

    name: str
    chunks: Iterable[bytes]
    empty: bool = False
    description: str = ""


def store(
    services: Services, caller: Caller, new: Sequence[NewFile], *, purpose: str = "fine-tune"
) -> list[StoredFile]:
    """Keep files.

    Raises:
        RequestError: an empty file, one without a usable name, or an unknown purpose. Then none is kept.
    """
    if purpose not in PURPOSES:
        raise RequestError(
            msg(
                "purpose: found {purpose!r}, expected one of {purposes}",
                purpose=purpose[:100],
                purposes=", ".join(PURPOSES),
            )
        )
    names = [_base_name(one.name) for one in new]
    empty = [name for name, one in zip(names, new, strict=True) if one.empty]
    if empty:
        raise RequestError(msg("empty: {empty}", empty=", ".join(empty)), fix=msg("write at least one row"))
    purpose = purpose.replace("_", "-")
    return [_store(services, caller, name, purpose, one) for name, one in zip(names, new, strict=True)]


def list_files(
    services: Services, caller: Caller, *, page_no: int, page_size: int, purpose: str | None = None
) -> tuple[list[StoredFile], int]:
    """A page of the workspace's files, newest first, and how many there are."""
    with services.database.read() as session:
        return numbered_files(
            session,
            workspace_id=caller.workspace_id,
            purpose=purpose,
            page_no=page_no,
            page_size=page_size,
        )


def get(services: Services, caller: Caller, file_id: str) -> StoredFile:
    """Raises MissingError: no such file in the caller's workspace."""
    with services.database.read() as session:
        return get_file(session, file_id, workspace_id=caller.workspace_id)


def delete(services: Services, caller: Caller, file_id: str) -> None:
    """Raises MissingError: no such file in the caller's workspace."""
    with services.database.write() as session:
        file = forget_file(session, file_id, workspace_id=caller.workspace_id)
        # Inside the transaction: an equal file that is being uploaded is either seen or writes the blob anew.
        if not is_held(session, file.sha256):
            services.blobs.delete(blob_key(file.sha256))


def blob_key(sha256: str) -> str:
    return f"files/{sha256[:2]}/{sha256}"


def _store(services: Services, caller: Caller, name: str, purpose: str, new: NewFile) -> StoredFile:
    """Write under a name of its own first: the hash is known at the end."""
    file_id = f"file-{secrets.token_hex(16)}"
    arriving = f"arriving/{file_id}"
    written = services.blobs.write(arriving, new.chunks)
    file = StoredFile(
        file_id=file_id,
        workspace_id=caller.workspace_id,
        name=name,
        description=new.description[:MAX_DESCRIPTION],
        purpose=purpose,
        size=written.size,
        sha256=written.sha256,
        md5=written.md5,
        created_at=datetime.now(UTC),
    )
    with services.database.write() as session:
        record_file(session, file)
        services.blobs.rename(arriving, blob_key(written.sha256))
    return file


def _base_name(given: str) -> str:
    """The last part of whatever path a client wrote, without control characters.

    >>> _base_name("../../data/train.jsonl"), _base_name("C:\\\\data\\\\train.jsonl")
    ('train.jsonl', 'train.jsonl')
    """
    name = PureWindowsPath(PurePosixPath(given).name).name
    name = "".join(letter for letter in name if letter.isprintable()).strip()
    if not name or name in (".", ".."):
        raise RequestError(msg("a file without a name"), fix=msg("give every file a name"))
    if len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        raise RequestError(
            msg("a file name of {num_name} characters", num_name=len(name)),
            fix=msg("at most {max_name_bytes} bytes", max_name_bytes=MAX_NAME_BYTES),
        )
    return name
