"""What is started anew where it ends, and what is not: with one that takes every order and makes no box."""

from __future__ import annotations

import asyncio
import sys
import tempfile

import pytest

from strop.errors import StropError
from strop.sandbox.zygotes import Zygote

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
            with pytest.raises(StropError, match="what makes boxes has ended"):
                await asyncio.wait_for(call, 5)
    assert zygote.pid == before
