"""The cache of test files: what is being read stays open, whatever comes and goes beside it."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from strop.sandbox import test_files
from strop.sandbox.sources import Allowed, Fetched
from strop.sandbox.test_files import TestFiles


def cases(*outputs: str) -> str:
    return json.dumps([{"input": {"stdin": "1"}, "output": {"stdout": one}} for one in outputs])


def cache(folder: Path, **more: float) -> TestFiles:
    return TestFiles(Allowed(hosts=(f"file://{folder}/",)), fresh_s=-1.0, **more)  # pyright: ignore[reportArgumentType]


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
