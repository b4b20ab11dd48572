"""A zip of user code -> a checked blob and a folder with its files, both named by the content's hash.

What a zip may not do: leave its folder, link, hold one name twice, grow beyond its limits when unpacked.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from strop.errors import RequestError, StoreError
from strop.locales import msg
from strop.service.settings import MIB, Limits
from strop.store.blobs import CHUNK_BYTES, Blobs

MAX_DEPTH = 40
MAX_NAME = 1024
_ENCRYPTED = 0x1
_END_MARK, _END_BYTES = b"PK\x05\x06", 22
_ZIP64_MARK = b"PK\x06\x07"
_END_LIMIT_BYTES = _END_BYTES + 2**16
"""The end of a zip: its record and a comment. Byte 12 on of the record is the size of the table."""

_TABLE_BYTES_AN_ENTRY = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file of a bundle. `name` is where it goes; `member` is how the archive knows it."""

    name: str
    size: int
    executable: bool
    member: zipfile.ZipInfo


def blob_key(sha256: str) -> str:
    return f"bundles/{sha256}.zip"


def folder_of(home: Path, sha256: str) -> Path:
    return home / "bundles" / sha256


def check_zip(path: Path, limits: Limits) -> list[Entry]:
    """Read the table of contents.

    Raises:
        RequestError: not a zip, or one that is refused; says which member and why.
    """
    _check_table(path, limits)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError, EOFError) as error:
        raise RequestError(
            msg("the upload is not a readable zip: {error}", error=error),
            fix=msg("PUT the bytes of a zip file"),
        ) from error
    if len(members) > limits.bundle_entries:
        raise RequestError(
            msg(
                "the zip has {num_members} members, at most {bundle_entries} are allowed",
                num_members=len(members),
                bundle_entries=limits.bundle_entries,
            ),
            fix=msg("leave data, environments and caches out of it"),
        )
    entries: dict[str, Entry] = {}
    for member in members:
        entry = _checked(member)
        if entry is None:
            continue
        if entry.name in entries:
            raise RequestError(msg("the zip holds {name!r} twice", name=entry.name))
        entries[entry.name] = entry
    _refuse_file_as_folder(entries)
    unpacked = sum(entry.size for entry in entries.values())
    if unpacked > limits.unpacked_bytes:
        raise RequestError(
            msg(
                "the zip unpacks to {unpacked} MiB; the limit is {unpacked_bytes} MiB",
                unpacked=unpacked // MIB,
                unpacked_bytes=limits.unpacked_bytes // MIB,
            )
        )
    if not entries:
        raise RequestError(msg("the zip is empty"), fix=msg("check the folder that is packed (zipdir)"))
    return list(entries.values())


def _check_table(path: Path, limits: Limits) -> None:
    """Refuse a table of contents that would fill the memory, before it is read."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _END_LIMIT_BYTES))
        tail = file.read()
    bare = tail[-_END_BYTES:].startswith(_END_MARK) and tail.endswith(b"\0\0")  # as zipfile looks for it
    at = len(tail) - _END_BYTES if bare else tail.rfind(_END_MARK)
    if at < 0 or len(tail) < at + _END_BYTES:
        return  # no zip, which its reader says better
    if tail[max(0, at - 20) : at].startswith(_ZIP64_MARK):
        raise RequestError(
            msg("the zip is in the form ZIP64, for more than 4 GiB"), fix=msg("pack it without ZIP64")
        )
    num_bytes = int.from_bytes(tail[at + 12 : at + 16], "little")
    if num_bytes > limits.bundle_entries * _TABLE_BYTES_AN_ENTRY:
        raise RequestError(
            msg(
                "the zip's table of contents has {num_bytes} bytes; at most {bundle_entries} "
                "members are allowed",
                num_bytes=num_bytes,
                bundle_entries=limits.bundle_entries,
            ),
            fix=msg("leave data, environments and caches out of it"),
        )


def _checked(member: zipfile.ZipInfo) -> Entry | None:
    """None for a folder."""
    # ZipInfo cuts `filename` at a NUL; the original says what the archive really holds.
    name = member.orig_filename
    mode = member.external_attr >> 16
    if member.flag_bits & _ENCRYPTED:
        raise RequestError(msg("the zip's member {name!r} is encrypted", name=name))
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise RequestError(
            msg("the zip's member {name!r} is a link; only files are allowed", name=name),
            fix=msg("pack its target instead"),
        )
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise RequestError(msg("the zip's member {name!r} is neither a file nor a folder", name=name))
    path = PurePosixPath(name)
    parts = path.parts
    if (
        not parts
        or path.is_absolute()
        or ".." in parts
        or "\\" in name
        or ":" in parts[0]
        or not name.isprintable()
        or len(name) > MAX_NAME
        or len(parts) > MAX_DEPTH
        or any(len(part.encode("utf-8", "replace")) > 255 for part in parts)
    ):
        raise RequestError(msg("the zip's member {name!r} is not a path inside the bundle", name=name[:200]))
    if member.is_dir():
        return None
    return Entry(name=str(path), size=member.file_size, executable=bool(mode & 0o100), member=member)


def _refuse_file_as_folder(entries: dict[str, Entry]) -> None:
    for name in entries:
        for parent in PurePosixPath(name).parents:
            if str(parent) in entries:
                raise RequestError(
                    msg("the zip holds {parent!r} both as a file and as a folder", parent=str(parent))
                )


def unpack(blobs: Blobs, home: Path, sha256: str, limits: Limits) -> Path:
    """The folder with a bundle's files, made where it is missing.

    Raises:
        MissingError: the blob has gone. RequestError: its contents are not what its table says.
    Concurrency:
        Any number of processes may ask at once; the folder appears whole.
    """
    folder = folder_of(home, sha256)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = folder.parent / f".{sha256[:16]}.{secrets.token_hex(4)}"
    try:
        work.mkdir()
        with tempfile.NamedTemporaryFile(dir=folder.parent, prefix=".zip-") as copy:
            for chunk in blobs.chunks(blob_key(sha256)):
                copy.write(chunk)
            copy.flush()
            _extract(Path(copy.name), work, limits)
        try:
            work.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    except OSError as error:
        raise StoreError(
            msg("the bundle cannot be unpacked: {error}", error=error),
            fix=msg("check the disk below STROP_HOME"),
        ) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _extract(source: Path, target: Path, limits: Limits) -> None:
    """Write the files ourselves: sizes are counted as they come, not as the table says."""
    entries = check_zip(source, limits)
    with zipfile.ZipFile(source) as archive:
        for entry in entries:
            path = target / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with archive.open(entry.member) as member, path.open("xb") as file:
                    left = entry.size
                    while chunk := member.read(min(CHUNK_BYTES, left + 1)):
                        left -= len(chunk)
                        if left < 0:
                            raise RequestError(
                                msg(
                                    "the zip's member {name!r} is longer than its table says", name=entry.name
                                )
                            )
                        file.write(chunk)
            except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
                raise RequestError(
                    msg("the zip's member {name!r} is damaged: {error}", name=entry.name, error=error)
                ) from error
            os.chmod(path, 0o755 if entry.executable else 0o644)
