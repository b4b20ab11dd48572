"""A URL of test cases -> the cases, read from disk one by one: fetched once, however many ask at once.

A group's completions are judged by the same file within seconds; files may have gigabytes. So each URL is
fetched by one request while the others wait for it, parsed as a stream into one line a case, and kept by
the hash of its content. A source with an ETag is asked again after a while whether it has changed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO
from weakref import WeakValueDictionary

import ijson  # pyright: ignore[reportMissingTypeStubs]
import orjson

from strop_sandbox.cases import Case, parse_case, refuse_no_cases
from strop_sandbox.errors import RequestError, TooLargeError
from strop_sandbox.sources import Allowed, fetch

FRESH_S = 60.0
"""Seconds in which a file is not asked for again."""

MAX_FILES = 256
"""Contents that are kept at most, however small: each is an open file, of which a process may have 1024."""

_MAX_URLS = 4096
"""Addresses that are known at most: a signed one is another with each signature."""

_CASE_BYTES = 64 * 2**20
"""What one case may have, as written: it is held in memory while it is read."""


class CaseFile:
    """Cases on disk: one JSON line each, and where each begins. URLs of one content share it."""

    def __init__(self, path: Path, starts: array[int]) -> None:
        self._file = path.open("rb")
        self._starts = starts
        self._num_holders = 1

    def shared(self) -> CaseFile:
        """This one, held once more: each holder closes it."""
        self._num_holders += 1
        return self

    @property
    def num_bytes(self) -> int:
        return self._starts[-1]

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> Case:
        start, end = self._starts[index], self._starts[index + 1]
        stdin, stdout = orjson.loads(os.pread(self._file.fileno(), end - start, start))
        return Case(stdin, stdout)

    def close(self) -> None:
        self._num_holders -= 1
        if not self._num_holders:
            self._file.close()


@dataclass(slots=True, eq=False)
class Entry:
    """One content of a URL. It outlives a newer one for as long as somebody reads it."""

    url: str
    cases: CaseFile
    sha256: str
    etag: str | None
    checked: float
    users: int = 0


class TestFiles:
    """The cache of one server, in a folder of its own that goes with it."""

    __test__ = False

    def __init__(
        self,
        allowed: Allowed,
        *,
        max_bytes: int = 8 * 2**30,
        max_files: int = MAX_FILES,
        fresh_s: float = FRESH_S,
    ) -> None:
        self._allowed, self._fresh_s = allowed, fresh_s
        self._max_bytes, self._max_files = max_bytes, max_files
        self._folder = Path(tempfile.mkdtemp(prefix="strop-tests-"))
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.num_fetched = 0

    async def take(self, url: str) -> Entry:
        """What holds the cases of a URL, to be released afterwards.

        Raises:
            RequestError: it is not allowed, or holds no list of cases; UnavailableError: it does not answer.
        """
        async with self._locks.setdefault(url, asyncio.Lock()):
            entry = self._entries.get(url)
            if entry is None:
                entry = await self._refreshed(url, None)
                entry.users += 1
            else:
                entry.users += 1  # what is asked for again must not be cleared away meanwhile
                if time.monotonic() - entry.checked > self._fresh_s:
                    entry = await self._instead_of(entry)
        if self._entries.get(url) is entry:
            self._entries.move_to_end(url)
        self._make_room()
        return entry

    def release(self, entry: Entry) -> None:
        entry.users -= 1
        if not entry.users and self._entries.get(entry.url) is not entry:
            entry.cases.close()
        self._make_room()

    async def _instead_of(self, known: Entry) -> Entry:
        try:
            entry = await self._refreshed(known.url, known)
            entry.users += 1
            return entry
        finally:
            self.release(known)

    async def _refreshed(self, url: str, known: Entry | None) -> Entry:
        descriptor, name = tempfile.mkstemp(dir=self._folder)
        os.close(descriptor)
        raw = Path(name)
        try:
            fetched = await fetch(url, self._allowed, raw, known.etag if known else None)
            self.num_fetched += 1
            if known is not None and fetched.sha256 in (None, known.sha256):
                known.checked, known.etag = time.monotonic(), fetched.etag
                return known
            assert fetched.sha256 is not None
            own = None if self._known(fetched.sha256) else await _parsed_beside(raw, self._folder)
        finally:  # gigabytes take a while to be removed, and nobody need wait for that
            asyncio.get_running_loop().run_in_executor(None, partial(raw.unlink, missing_ok=True))
        # From here on nothing is waited for: what was read has an owner, and no one can clear it away.
        if same := self._known(fetched.sha256):  # as another one has read it meanwhile
            if own is not None:
                own.close()
            own = same.shared()
        assert own is not None
        entry = Entry(url, own, fetched.sha256, fetched.etag, time.monotonic())
        if known is not None:
            self._forget(known)
        self._entries[url] = entry
        return entry

    def _known(self, sha256: str) -> CaseFile | None:
        """As another URL gave it: a signed one differs with each signature."""
        return next((one.cases for one in self._entries.values() if one.sha256 == sha256), None)

    def _make_room(self) -> None:
        """Of what nobody reads, let go what was not asked for longest."""
        for entry in list(self._entries.values()):
            held = {id(one.cases): one.cases.num_bytes for one in self._entries.values()}
            urls = len(self._entries)
            if urls <= _MAX_URLS and len(held) <= self._max_files and sum(held.values()) <= self._max_bytes:
                return
            if not entry.users:
                self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        self._entries.pop(entry.url, None)
        if not entry.users:
            entry.cases.close()

    def close(self) -> None:
        for entry in self._entries.values():
            entry.cases.close()
        self._entries.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


async def _parsed_beside(raw: Path, folder: Path) -> CaseFile:
    """In a thread, which goes on where nobody waits any more: what it makes is closed then."""
    parsing = asyncio.ensure_future(asyncio.to_thread(_parsed, raw, folder))
    try:
        return await asyncio.shield(parsing)
    except asyncio.CancelledError:
        parsing.add_done_callback(lambda done: done.exception() or done.result().close())
        raise


def _parsed(raw: Path, folder: Path) -> CaseFile:
    descriptor, name = tempfile.mkstemp(dir=folder, suffix=".cases")
    starts = array("q", [0])
    try:
        with raw.open("rb") as source, open(descriptor, "wb") as target:
            for index, row in enumerate(_rows(source)):
                case = parse_case(row, index)
                starts.append(starts[-1] + target.write(orjson.dumps([case.stdin, case.stdout])))
        refuse_no_cases(len(starts) - 1)
        return CaseFile(Path(name), starts)
    finally:
        os.unlink(name)  # it lives on under its descriptor, and goes with it


class _Bounded:
    """A file that is read by the piece, of which no more than `_CASE_BYTES` may make one case."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.num_bytes = 0

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self.num_bytes += len(data)
        if self.num_bytes > _CASE_BYTES:
            raise TooLargeError(f"a case of the test file has more than {_CASE_BYTES} bytes")
        return data


def _rows(source: IO[bytes]) -> Iterator[object]:
    """The items of a JSON list, one after the other."""
    bounded = _Bounded(source)
    try:
        for row in ijson.items(bounded, "item"):
            bounded.num_bytes = 0
            yield row
    except ijson.JSONError as error:
        raise RequestError(f"the test file is not a JSON list of cases: {error}") from error
