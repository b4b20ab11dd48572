"""Turns: never more than there are slots, and keys take turns however much each asks."""

import asyncio

import pytest

from strop_sandbox.errors import ThrottledError
from strop_sandbox.slots import Slots


async def test_keys_take_turns_and_the_limit_holds() -> None:
    slots = Slots(2, 100)
    order: list[str] = []
    most = 0

    async def ask(key: str) -> None:
        nonlocal most
        async with slots.turn(key):
            most = max(most, slots.num_running)
            order.append(key)
            await asyncio.sleep(0)

    await asyncio.gather(*(ask(key) for key in ["many"] * 8 + ["one", "other"]))
    assert most == 2
    assert slots.num_running == 0
    # Two of the eight are running when the others come; then the three keys take turns.
    assert order[:5] == ["many", "many", "many", "one", "other"]


async def test_who_stops_waiting_takes_no_slot_along() -> None:
    slots = Slots(1, 100)
    async with slots.turn("a"):
        waiting = asyncio.create_task(slots.turn("b").__aenter__())
        await asyncio.sleep(0)
        assert slots.num_waiting == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert slots.num_waiting == 0
    async with slots.turn("c"):
        assert slots.num_running == 1
    assert slots.num_running == 0


async def test_beyond_what_may_wait_a_request_is_refused() -> None:
    slots = Slots(1, 1)
    async with slots.admitted(), slots.admitted():
        with pytest.raises(ThrottledError):
            async with slots.admitted():
                raise AssertionError("admitted")
    assert slots.num_admitted == 0
