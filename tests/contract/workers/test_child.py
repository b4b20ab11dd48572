"""A child that misuses its channel: lost, never waited for."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest

from strop.workers.child import Child

WRITES = """
import os, sys, time
from strop.workers.child import open_channel
descriptor = int(sys.argv[1])
report, _ = open_channel(descriptor)
with os.fdopen(os.dup(descriptor), "wb") as channel:
    channel.write(eval(sys.argv[2]))
time.sleep(60)
"""

WAITS = """
import sys, time
from strop.workers.child import open_channel
open_channel(int(sys.argv[1]))
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("b'not json' + bytes([10])", "JSONDecodeError"),
        ("bytes([0xff, 10])", "UnicodeDecodeError"),
        ("b'x' * 2**21 + bytes([10])", "ValueError"),
        ("b'[' * 100_000 + bytes([10])", "RecursionError"),
        ("b'{}' + bytes([10])", "KeyError"),
        ("b'[]' + bytes([10])", "TypeError"),
    ],
)
async def test_a_child_that_writes_nonsense_to_its_channel_is_ended_and_said_to_be(
    written: str, said: str
) -> None:
    events: list[str] = []
    exits: list[str] = []

    def take(event: dict[str, Any]) -> None:
        events.append(event["event"])

    child = Child(
        mask=str, on_event=take, on_line=lambda *_: None, on_exit=lambda: exits.append(child.ending())
    )
    command = [sys.executable, "-c", WRITES]
    await child.spawn(lambda fd: [*command, str(fd), written], dict(os.environ), "{}")
    async with asyncio.timeout(30):
        await child.exited.wait()
        await child.kill()
    assert events == []
    (ending,) = exits
    assert ending.startswith(f"was ended: what came on its channel is no event ({said}")


async def test_a_child_whose_end_is_taken_badly_has_ended_all_the_same() -> None:
    def fails() -> None:
        raise LookupError("nobody there")

    child = Child(mask=str, on_event=lambda _: None, on_line=lambda *_: None, on_exit=fails)
    await child.spawn(lambda fd: [sys.executable, "-c", "pass"], dict(os.environ), "{}")
    async with asyncio.timeout(30):
        await child.exited.wait()
        await child.kill()


def test_a_loop_that_closes_while_a_child_runs_takes_it_along() -> None:
    """As `asyncio.run` does when its coroutine failed, or at Ctrl-C: every task is cancelled at once."""
    found: list[tuple[Child, asyncio.Task[None]]] = []

    async def fails() -> None:
        child = Child(mask=str, on_event=lambda _: None, on_line=lambda *_: None)
        await child.spawn(lambda fd: [sys.executable, "-c", WAITS, str(fd)], dict(os.environ), "{}")
        found.append((child, asyncio.create_task(ended_when_cancelled(child))))
        await asyncio.sleep(0)
        raise LookupError("the other one failed")

    async def ended_when_cancelled(child: Child) -> None:
        try:
            await child.exited.wait()
        finally:
            await child.kill()

    with pytest.raises(LookupError):
        asyncio.run(fails())
    ((child, ending),) = found
    assert ending.cancelled()
    assert child.exited.is_set()
    assert child.ending() == "was killed by SIGKILL"
