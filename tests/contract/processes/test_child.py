"""A child that misuses its channel: lost, never waited for."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest

from strop.processes.child import Child, NotStarted

WRITES = """
import os, sys, time
from strop.processes.child import open_channel
descriptor = int(sys.argv[1])
report, _ = open_channel(descriptor)
with os.fdopen(os.dup(descriptor), "wb") as channel:
    channel.write(eval(sys.argv[2]))
time.sleep(60)
"""

WAITS = """
import sys, time
from strop.processes.child import open_channel
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

    def take(event: dict[str, Any]) -> None:
        events.append(event["event"])

    child = Child(mask=str, on_event=take, on_line=lambda *_: None)
    command = [sys.executable, "-c", WRITES]
    await child.spawn(lambda fd: [*command, str(fd), written], dict(os.environ), "{}")
    async with asyncio.timeout(30):
        await child.exited.wait()
        await child.kill()
    assert events == []
    assert child.ending().startswith(f"was ended: it wrote to its channel what is not an event ({said}")


STARTS = """
import sys, time
from strop.processes.child import open_channel
report, line = open_channel(int(sys.argv[1]))
exec(line)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("line", "limit_s", "how", "text"),
    [
        ("report(event='error', text='no such secret model')", 30, "refused", "no such *** model"),
        (
            "print('out of luck', file=sys.stderr); sys.exit(3)",
            30,
            "ended",
            "exited with status 3; its last lines:\nout of luck",
        ),
        ("report(event='memory')", 0.5, "late", "was not ready after 0.5 s"),
        (
            "report(event='ready')",
            30,
            "ended",
            "was ended: it wrote to its channel what is not an event (KeyError: 'port')",
        ),
    ],
)
async def test_a_child_that_does_not_become_ready_says_why_and_is_gone(
    line: str, limit_s: float, how: str, text: str
) -> None:
    ports: list[int] = []
    child = Child(
        mask=lambda text: text.replace("secret", "***"),
        on_line=lambda *_: None,
        on_ready=lambda event: ports.append(event["port"]),
    )
    with pytest.raises(NotStarted) as caught:
        await child.start(
            lambda fd: [sys.executable, "-c", STARTS, str(fd)], dict(os.environ), line, limit_s=limit_s
        )
    assert (caught.value.how, str(caught.value)) == (how, text)
    async with asyncio.timeout(30):
        await child.kill()
    assert child.exited.is_set()


async def test_a_child_is_started_once_it_says_that_it_is_ready() -> None:
    events: list[dict[str, Any]] = []
    child = Child(mask=str, on_line=lambda *_: None, on_ready=events.append, on_event=events.append)
    line = "report(event='memory', bytes=1); report(event='ready', port=7)"
    await child.start(lambda fd: [sys.executable, "-c", STARTS, str(fd)], dict(os.environ), line, limit_s=30)
    assert events == [{"event": "memory", "bytes": 1}, {"event": "ready", "port": 7}]
    await child.kill()
    assert child.exited.is_set()


def test_a_loop_that_closes_while_a_child_runs_takes_it_along() -> None:
    """As `asyncio.run` does when its coroutine failed, or at Ctrl-C: every task is cancelled at once."""
    found: list[tuple[Child, asyncio.Task[None]]] = []

    async def fails() -> None:
        child = Child(mask=str, on_line=lambda *_: None)
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
