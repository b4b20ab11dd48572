"""The pool of boxes: one that cannot be started costs no other one, and its place is taken again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from strop_sandbox import pool as pool_module
from strop_sandbox.pool import Pool


class FakeBox:
    """Stands for a box: counts what is open."""

    is_alive = True

    def __init__(self, open_now: set[FakeBox]) -> None:
        self._open_now = open_now
        open_now.add(self)

    async def close(self) -> None:
        await asyncio.sleep(0)
        self._open_now.discard(self)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Boxes are fakes; the starts whose numbers stand in `failing` fail, `held` holds them back."""
    state: dict[str, Any] = {"open": set(), "failing": set(), "starts": 0, "held": None}

    async def start(_: object) -> FakeBox:
        state["starts"] += 1
        number = state["starts"]
        if state["held"] is not None and number > 1:
            await state["held"].wait()
        if number in state["failing"]:
            raise OSError(f"start {number}")
        return FakeBox(state["open"])

    monkeypatch.setattr(pool_module.Box, "start", start)
    return state


async def test_where_one_cannot_be_started_those_that_were_are_closed(started: dict[str, Any]) -> None:
    started["failing"] = {2}
    with pytest.raises(OSError, match="start 2"):
        await Pool(None, 3).open()  # type: ignore[arg-type]
    assert (started["starts"], started["open"]) == (3, set())


async def test_opening_that_is_given_up_leaves_none_behind(started: dict[str, Any]) -> None:
    started["held"] = asyncio.Event()
    opening = asyncio.ensure_future(Pool(None, 3).open())  # type: ignore[arg-type]
    while not started["open"] or started["starts"] < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert started["open"] == set()


async def test_a_place_that_could_not_be_filled_is_filled_with_the_next_one(
    started: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    pool = Pool(None, 2)  # type: ignore[arg-type]
    await pool.open()
    started["failing"] = {3}
    for expected in (1, 2):
        async with pool.box():
            pass
        while pool._tasks:  # noqa: ASYNC110  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0)
        assert pool.num_ready == expected
    assert "start 3" in caplog.text
    await pool.close()
    assert started["open"] == set()
