"""Bytes -> the blob store, by key: a folder below `STROP_HOME`, or any fsspec URL by `STROP_STORAGE_URL`.

A blob appears whole or not at all. Keys are made by us, of hashes and ids, never of what a client wrote.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from fsspec.core import url_to_fs  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

from strop.errors import MissingError, StoreError
from strop.locales import msg
from strop.store.home import home

CHUNK_BYTES = 1024 * 1024


def storage_url() -> str:
    """`STROP_STORAGE_URL`, else a folder below `STROP_HOME`."""
    return os.environ.get("STROP_STORAGE_URL") or str(home() / "blobs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written: how many bytes, and their hashes in hexadecimal."""

    size: int
    sha256: str
    md5: str


class Blobs:
    """A blob store.

    Concurrency:
        Safe to share between threads and processes; of two writers of one key the later one stands.
    """

    def __init__(self, url: str | None = None) -> None:
        """Raises:
        StoreError: no such kind of store, or its package is not installed.
        """
        self.url = url or storage_url()
        try:
            opened = cast("tuple[Any, str]", url_to_fs(self.url))
        except (ValueError, ImportError) as error:
            raise StoreError(
                msg("the blob store {url!r} cannot be opened: {error}", url=self.url, error=error),
                fix=msg("STROP_STORAGE_URL is a folder or an fsspec URL; s3:// needs pip install s3fs"),
            ) from error

        self._fs, self._root = opened

    @property
    def is_local(self) -> bool:
        return "file" in _protocols(self._fs)

    def path(self, key: str) -> Path | None:
        """Where the blob lies on this machine, if the store is a folder."""
        return Path(self._place(key)) if self.is_local else None

    def write(self, key: str, chunks: Iterable[bytes]) -> Written:
        """Write a whole blob, hashing on the way.

        Raises:
            StoreError: the store refused; nothing of it is left.
        """
        sink = self.begin(key)
        try:
            for chunk in chunks:
                sink.write(chunk)
        except BaseException:
            sink.discard()
            raise
        return sink.finish()

    def begin(self, key: str) -> Sink:
        """A blob to be written in pieces; it exists once `finish` was called."""
        with _refusals(self.url):
            place = self._place(key)
            self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            file = self._open_part(place) if self.is_local else self._fs.open(place, "wb", autocommit=False)
            return Sink(file, self.url)

    def _open_part(self, place: str) -> _Part:
        """On the store's own disk: fsspec's would lie among temporary files, and be copied from there."""
        folder = self.parts_folder
        assert folder is not None
        folder.mkdir(parents=True, exist_ok=True)
        return _Part(folder / secrets.token_hex(16), Path(place))

    @property
    def parts_folder(self) -> Path | None:
        """Where blobs lie that are being written, if the store is a folder."""
        return Path(self._root) / ".parts" if self.is_local else None

    @contextmanager
    def open(self, key: str) -> Generator[IO[bytes]]:
        """Raises:
        MissingError: the blob does not exist. StoreError: the store refused.
        """
        with _refusals(self.url):
            try:
                file = self._fs.open(self._place(key), "rb")
            except FileNotFoundError as error:
                raise MissingError(
                    msg("the blob store has lost {key!r}", key=key), fix=msg("upload it again")
                ) from error
        with file:
            yield file

    def chunks(self, key: str) -> Generator[bytes]:
        with self.open(key) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    def exists(self, key: str) -> bool:
        with _refusals(self.url):
            return bool(self._fs.exists(self._place(key)))

    def rename(self, old: str, new: str) -> None:
        """Give a blob its final key, in the place of an equal one."""
        with _refusals(self.url):
            target = self._place(new)
            self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._fs.mv(self._place(old), target)

    def delete(self, key: str) -> None:
        """Harmless when the blob does not exist."""
        with _refusals(self.url):
            try:
                self._fs.rm_file(self._place(key))
            except FileNotFoundError:
                return

    def _place(self, key: str) -> str:
        parts = key.split("/")
        if not all(parts) or any(part.startswith(".") or "\\" in part for part in parts):
            raise ValueError(f"{key!r} is not a key")
        return f"{self._root.rstrip('/')}/{key}"


class _Part:
    """A file that takes its name when it is committed; the part of fsspec's interface that `Sink` needs."""

    def __init__(self, part: Path, place: Path) -> None:
        self._part, self._place = part, place
        self._file = part.open("xb")

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)

    def close(self) -> None:
        self._file.close()

    def commit(self) -> None:
        """Bytes first, name second, both on the disk: else a power cut leaves a name with nothing in it."""
        _sync(self._part)
        self._part.replace(self._place)
        _sync(self._place.parent)

    def discard(self) -> None:
        self._part.unlink(missing_ok=True)


class Sink:
    """A blob that is being written."""

    def __init__(self, file: Any, url: str) -> None:
        self._file = file
        self._url = url
        self._sha256 = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False)
        self.size = 0

    def write(self, chunk: bytes) -> None:
        with _refusals(self._url):
            self._file.write(chunk)
        self._sha256.update(chunk)
        self._md5.update(chunk)
        self.size += len(chunk)

    def finish(self) -> Written:
        with _refusals(self._url):
            self._file.close()
            self._file.commit()
        return Written(size=self.size, sha256=self._sha256.hexdigest(), md5=self._md5.hexdigest())

    def discard(self) -> None:
        with _refusals(self._url):
            self._file.close()
            self._file.discard()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _protocols(fs: Any) -> tuple[str, ...]:
    protocol = fs.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


@contextmanager
def _refusals(url: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            msg("the blob store {url!r} refused: {error}", url=url, error=error),
            fix=msg("check the disk, or STROP_STORAGE_URL"),
        ) from error
