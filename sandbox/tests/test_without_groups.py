"""A machine on which no control group can be made: the init process of a box and rlimits keep the same limits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from strop_sandbox.isolation import open_isolation
from strop_sandbox.sandbox import Sandbox, Settings
from strop_sandbox.toolchains import Toolchains
from strop_sandbox.wire import CommandResult, RunCodeRequest


@asynccontextmanager
async def bare() -> AsyncGenerator[Sandbox]:
    toolchains = Toolchains(sys.executable)
    isolation = open_isolation(roots=toolchains.roots)
    if isolation.cgroups is not None:
        isolation.cgroups.close()
        isolation.cgroups = None
    sandbox = Sandbox(isolation, toolchains, Settings(max_running=4, num_ready=4))
    try:
        await sandbox.open()
        yield sandbox
    finally:
        await sandbox.close()


async def run(sandbox: Sandbox, code: str, language: str = "python", **more: Any) -> CommandResult:
    reply = await sandbox.run_code(RunCodeRequest(code=code, language=language, **more))  # pyright: ignore[reportArgumentType]
    assert reply.run_result is not None, reply
    return reply.run_result


GROWS = "held = []\nwhile True: held.append(bytearray(1 << 20))"
AT_ONCE = "held = bytearray(300 << 20)"
IN_CHILDREN = """import os, time
for _ in range(8):
    if os.fork() == 0:
        held = bytearray(40 << 20)
        time.sleep(60)
time.sleep(60)"""
BEYOND_ALL = "held = bytearray(1 << 40)"


async def test_who_takes_more_memory_than_allowed_is_ended_and_named() -> None:
    """Slowly, in less time than passes between two looks, or in many processes of which none is large."""
    hogs = [GROWS, AT_ONCE, IN_CHILDREN]
    async with bare() as sandbox:
        done = await asyncio.gather(
            *(run(sandbox, hog, memory_limit_MB=100) for hog in hogs), run(sandbox, "print(6 * 7)")
        )
        refused = await run(sandbox, BEYOND_ALL, memory_limit_MB=100)
    assert [(one.reason, one.return_code, one.signal) for one in done[:3]] == [
        ("memory_limit", -9, "SIGKILL")
    ] * 3
    assert (done[3].reason, done[3].stdout) == ("", "42\n")
    assert (refused.reason, refused.return_code) == ("", 1)
    assert (refused.stderr or "").endswith("MemoryError\n")


FORKS = """import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except BlockingIOError:
    print(made)"""
LARGE_FILE = "with open('x', 'wb') as file:\n    while True: file.write(bytes(1 << 20))"


async def test_processes_computing_and_files_have_their_bounds() -> None:
    async with bare() as sandbox:
        forked, computed, wrote, well = await asyncio.gather(
            run(sandbox, FORKS),
            run(sandbox, "while True: pass", run_timeout=0.3),
            run(sandbox, LARGE_FILE),
            run(sandbox, "print(6 * 7)"),
        )
        after = await run(sandbox, "print(1)")
    most = sandbox.limits(1.0).processes
    assert most - 4 <= int(forked.stdout or "0") < most
    assert (computed.reason, computed.status.value) == ("cpu_time_limit", "TimeLimitExceeded")
    assert wrote.return_code == 1
    assert "File too large" in (wrote.stderr or "")
    assert (well.stdout, after.stdout) == ("42\n", "1\n")


async def test_a_compiler_s_memory_is_not_its_program_s() -> None:
    async with bare() as sandbox:
        code = "#include <iostream>\nint main() { std::cout << 42; }"
        reply = await sandbox.run_code(RunCodeRequest(code=code, language="cpp"))
    assert reply.compile_result is not None
    assert reply.run_result is not None
    assert reply.run_result.stdout == "42"
    assert (reply.compile_result.memory_MB or 0) > 50
    assert (reply.run_result.memory_MB or 0) < 25
