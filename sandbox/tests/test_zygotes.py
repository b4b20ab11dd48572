"""What is started anew where it ends, and what is not: with one that takes every order and makes no box."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from strop_sandbox.errors import SandboxError
from strop_sandbox.zygotes import Zygote

DEAF = """
import os, socket
control = socket.socket(fileno=0)
control.recv(1 << 20)
socket.send_fds(control, [b"ready"], [os.pidfd_open(os.getpid())])
held = []
while (taken := socket.recv_fds(control, 1 << 12, 2))[0]:
    held.append(taken)
"""


async def test_closed_while_a_box_is_asked_of_it_it_says_so_and_starts_no_other() -> None:
    zygote = Zygote([sys.executable, "-I", "-S", "-c", DEAF], {})
    before = zygote.pid
    with tempfile.TemporaryFile() as words:
        asked = asyncio.ensure_future(zygote.fork(1, words.fileno()))
        await asyncio.sleep(0)
        zygote.close()
        for call in (asked, zygote.fork(1, words.fileno())):
            with pytest.raises(SandboxError, match="what makes boxes has ended"):
                await asyncio.wait_for(call, 5)
    assert zygote.pid == before


SLOW = """
import os, socket, sys, time
first, may_start = sys.argv[1:]
if os.path.exists(first):
    while not os.path.exists(may_start):
        time.sleep(0.01)
open(first, "w").close()
control = socket.socket(fileno=0)
control.recv(1 << 20)
socket.send_fds(control, [b"ready"], [os.pidfd_open(os.getpid())])
while taken := socket.recv_fds(control, 1 << 12, 2)[0]:
    pass
"""


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - of processes, which wake no event of this loop
            await asyncio.sleep(0.01)


async def test_while_another_takes_its_place_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one starts only once this loop, which must not be held up by it, has let it."""
    monkeypatch.setattr("strop_sandbox.zygotes.HUNG_S", 0.05)
    first, may_start = tmp_path / "first", tmp_path / "may_start"
    zygote = Zygote([sys.executable, "-I", "-S", "-c", SLOW, str(first), str(may_start)], {})
    before = zygote.pid
    os.kill(before, signal.SIGSTOP)
    with tempfile.TemporaryFile() as words:
        asked = [asyncio.ensure_future(zygote.fork(uid, words.fileno())) for uid in (1, 2)]
        await until(lambda: not Path(f"/proc/{before}").exists())
        assert not any(one.done() for one in asked)
        may_start.touch()
        replies = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)
    # Nor does that one make boxes: each was tried thrice, and for both together one was started at a time.
    assert [str(one) for one in replies] == ["what makes boxes has made none for 0.05 s"] * 2
    assert zygote.pid != before
    zygote.close()


async def test_closed_while_another_takes_its_place_none_is_left(tmp_path: Path) -> None:
    first, may_start = tmp_path / "first", tmp_path / "may_start"
    zygote = Zygote([sys.executable, "-I", "-S", "-c", SLOW, str(first), str(may_start)], {})
    before = zygote.pid
    os.kill(before, signal.SIGKILL)
    with tempfile.TemporaryFile() as words:
        asked = asyncio.ensure_future(zygote.fork(1, words.fileno()))
        await until(lambda: zygote._coming is not None)  # pyright: ignore[reportPrivateUsage]
        zygote.close()
        may_start.touch()
        with pytest.raises(SandboxError, match="what makes boxes has ended"):
            await asyncio.wait_for(asked, 30)
    assert zygote.pid == before
