"""The cache of test files: what is being read stays open, whatever comes and goes beside it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strop_sandbox import test_files
from strop_sandbox.errors import TooLargeError
from strop_sandbox.sources import Allowed, Fetched
from strop_sandbox.test_files import TestFiles


def cases(*outputs: str) -> str:
    return json.dumps([{"input": {"stdin": "1"}, "output": {"stdout": one}} for one in outputs])


def cache(folder: Path, **more: float) -> TestFiles:
    return TestFiles(Allowed(hosts=(f"file://{folder}/",)), fresh_s=-1.0, **more)  # pyright: ignore[reportArgumentType]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - of threads, which wake no event of this loop
            await asyncio.sleep(0.01)


async def test_who_releases_first_closes_nobody_else_s_cases(tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(cases("old"))
    files = cache(tmp_path)
    old = await files.take(f"file://{path}")
    path.write_text(cases("new"))
    new = await files.take(f"file://{path}")
    files.release(new)
    assert old.cases[0].stdout == "old"
    again = await files.take(f"file://{path}")
    assert again is new
    assert again.cases[0].stdout == "new"
    files.release(old)
    with pytest.raises(ValueError, match="closed"):
        old.cases[0]
    files.release(again)
    files.close()


async def test_what_is_asked_for_again_is_not_cleared_away_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {"file:///known": cases("1"), "file:///other": cases("2")}
    may_answer, asked = asyncio.Event(), asyncio.Event()
    may_answer.set()

    async def fetch(url: str, allowed: Allowed, target: Path, etag: str | None = None) -> Fetched:
        if url == "file:///known":
            asked.set()
            await may_answer.wait()
        target.write_text(contents[url])  # noqa: ASYNC240 - a few bytes
        return Fetched(hashlib.sha256(contents[url].encode()).hexdigest(), None)

    monkeypatch.setattr(test_files, "fetch", fetch)
    files = cache(tmp_path, max_bytes=1)
    files.release(await files.take("file:///known"))
    may_answer.clear()
    asked.clear()
    refreshing = asyncio.ensure_future(files.take("file:///known"))
    await asked.wait()
    files.release(await files.take("file:///other"))
    may_answer.set()
    entry = await refreshing
    assert entry.cases[0].stdout == "1"
    files.release(entry)
    files.close()


async def test_no_lock_is_kept_for_an_address_that_nobody_asks_for(tmp_path: Path) -> None:
    (tmp_path / "cases.json").write_text(cases("1"))
    files = cache(tmp_path)
    files.release(await files.take(f"file://{tmp_path}/cases.json"))
    assert len(files._locks) == 0  # pyright: ignore[reportPrivateUsage]
    files.close()


async def test_one_content_under_two_addresses_is_kept_once(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(cases("1", "2"))
    files = cache(tmp_path)
    first, second = [await files.take(f"file://{tmp_path}/{name}") for name in "ab"]
    assert first.cases is second.cases
    (tmp_path / "a").write_text(cases("3"))
    files.release(first)
    again = await files.take(f"file://{tmp_path}/a")
    assert (len(again.cases), again.cases[0].stdout) == (1, "3")
    assert second.cases[1].stdout == "2"  # the other one holds it still
    files.release(again)
    files.release(second)
    files.close()
    with pytest.raises(ValueError, match="closed"):
        second.cases[0]


async def test_one_content_that_is_fetched_twice_at_once_is_kept_once(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(cases("1", "2"))
    files = cache(tmp_path)
    urls = [f"file://{tmp_path}/{name}" for name in "ab"]
    first, second = await asyncio.gather(*map(files.take, urls))
    assert first.cases is second.cases
    assert [entry.cases[1].stdout for entry in (first, second)] == ["2", "2"]
    files.release(first)
    files.release(second)
    files.close()
    with pytest.raises(ValueError, match="closed"):
        first.cases[0]


async def test_what_is_no_longer_read_goes_where_there_is_no_room_for_it(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text(cases(name))
    urls = [f"file://{tmp_path}/{name}" for name in "abc"]
    files = cache(tmp_path, max_bytes=1)
    entry = await files.take(urls[0])
    assert entry.cases[0].stdout == "a"
    files.release(entry)
    with pytest.raises(ValueError, match="closed"):
        entry.cases[0]
    files.close()
    few = TestFiles(Allowed(hosts=(f"file://{tmp_path}/",)), max_files=2)
    taken = [await few.take(url) for url in urls]
    assert [one.cases[0].stdout for one in taken] == ["a", "b", "c"]  # who reads is not disturbed
    for one in reversed(taken):
        few.release(one)
    with pytest.raises(ValueError, match="closed"):
        taken[2].cases[0]
    assert [one.cases[0].stdout for one in taken[:2]] == ["a", "b"]
    few.close()


async def test_one_content_takes_its_room_once_under_however_many_addresses(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).write_text(cases("1", "2"))
    urls = [f"file://{tmp_path}/{name}" for name in "abcd"]
    files = TestFiles(Allowed(hosts=(f"file://{tmp_path}/",)), max_bytes=20)
    for url in (*urls, *urls):
        entry = await files.take(url)
        assert entry.cases.num_bytes == len('["1","1"]["1","2"]')
        files.release(entry)
    assert files.num_fetched == 4
    files.close()


async def test_the_newest_etag_is_asked_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    etags = iter(["one", "two", "three"])

    async def fetch(url: str, allowed: Allowed, target: Path, etag: str | None = None) -> Fetched:
        asked.append(etag)
        target.write_text(cases("1"))  # noqa: ASYNC240 - a few bytes
        return Fetched("the same", next(etags))

    monkeypatch.setattr(test_files, "fetch", fetch)
    files = cache(tmp_path)
    for _ in range(3):
        files.release(await files.take("file:///a"))
    assert asked == [None, "one", "two"]
    files.close()


async def test_who_leaves_while_a_file_is_read_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text(cases("1"))
    reads, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    parsed, made = test_files._parsed, []  # pyright: ignore[reportPrivateUsage]

    def slowly(*arguments: Any) -> Any:
        made.append(parsed(*arguments))
        reads.set()
        assert may_end.wait(30)
        return made[0]

    monkeypatch.setattr(test_files, "_parsed", slowly)
    close = test_files.CaseFile.close
    monkeypatch.setattr(test_files.CaseFile, "close", lambda file: (close(file), ended.set()))
    files = cache(tmp_path)
    url = f"file://{tmp_path}/a"
    leaving = asyncio.ensure_future(files.take(url))
    await asyncio.to_thread(reads.wait, 30)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    assert made[0][0].stdout == "1"
    may_end.set()
    await until(ended.is_set)
    with pytest.raises(ValueError, match="closed"):
        made[0][0]
    files.close()


async def test_a_case_that_memory_cannot_hold_is_refused_however_many_small_ones_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_files, "_CASE_BYTES", 200_000)
    (tmp_path / "many").write_text(cases(*["x" * 1000] * 1000))
    (tmp_path / "large").write_text(cases("1", "x" * 300_000))
    files = cache(tmp_path)
    many = await files.take(f"file://{tmp_path}/many")
    assert len(many.cases) == 1000
    files.release(many)
    with pytest.raises(TooLargeError, match="a case of the test file has more than 200000 bytes"):
        await files.take(f"file://{tmp_path}/large")
    folder = files._folder  # pyright: ignore[reportPrivateUsage]
    await until(lambda: not os.listdir(folder))
    files.close()


async def test_so_many_addresses_of_one_content_are_known_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_files, "_MAX_URLS", 2)
    for name in "abc":
        (tmp_path / name).write_text(cases("1"))
    files = TestFiles(Allowed(hosts=(f"file://{tmp_path}/",)))
    for name in "abca":
        files.release(await files.take(f"file://{tmp_path}/{name}"))
    assert files.num_fetched == 4
    files.release(await files.take(f"file://{tmp_path}/c"))
    assert files.num_fetched == 4
    files.close()
