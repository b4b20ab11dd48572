"""Workers that stop answering or die: told, killed, replaced; never a hang, never a 0."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from strop import AgentOutput, RewardInput
from strop.config.job import FunctionConfig
from strop.workers.functions import FunctionPool

StartPool = Callable[..., Awaitable[Any]]
Until = Callable[..., Awaitable[None]]
ProcessesOf = Callable[..., list[int]]

SOURCE_OF_HANGS = """
import asyncio, hashlib, os, re, subprocess, time
from strop import *
HANGS = {
    "python-loop": lambda: exec("while True: pass"),
    "c-call": lambda: time.sleep(60),
    "long-c-call": lambda: hashlib.pbkdf2_hmac("sha256", b"a", b"b", 10**9),
    "c-call-that-holds-the-interpreter": lambda: re.match("(a+)+$", "a" * 60 + "b"),
    "child-process": lambda: subprocess.run(["sleep", "60"]),
    "child-in-its-own-session": lambda: subprocess.run(["sleep", "60"], start_new_session=True),
}
def act(input):
    if input.ground_truth != "well":
        HANGS[input.ground_truth]()
    return {"reward": {"reward_score": 1}, "pid": os.getpid()}
class Plain(AbstractRewardProcessor):
    def process(self, input):
        return act(input)
class Async(AbstractRewardProcessor):
    async def process(self, input):
        return act(input)
"""
HANGS = [
    ("Plain", "python-loop"),
    ("Plain", "c-call"),
    ("Plain", "long-c-call"),
    ("Plain", "child-process"),
    ("Plain", "child-in-its-own-session"),
    ("Async", "python-loop"),
    ("Async", "c-call-that-holds-the-interpreter"),
    ("Async", "child-process"),
]


async def test_every_kind_of_hang_is_a_timeout_and_its_processes_are_gone(
    tmp_path: Path, until: Until, processes_of: ProcessesOf
) -> None:
    (tmp_path / "hangs.py").write_text(SOURCE_OF_HANGS)
    job_id = f"job-{uuid.uuid4()}"
    configs = [
        FunctionConfig.model_validate(
            {
                "type": "reward",
                "name": f"{class_name}-{way}",
                "timeout": 0.5,
                "fcmodel": {"classpath": f"hangs.py:{class_name}"},
                "runtime": {"env": {"OF": f"{job_id}-{class_name}-{way}"}},
            }
        )
        for class_name, way in HANGS
    ]
    pool = FunctionPool(configs, root=tmp_path, job_id=job_id, on_line=lambda *_: None, grace_s=1.0)

    async def hang(class_name: str, way: str) -> None:
        name = f"{class_name}-{way}"

        def processes() -> set[int]:
            return set(processes_of(f"{job_id}-{name}", "OF"))

        old = processes()
        assert len(old) == 2, name  # a reaper and its worker
        hung = asyncio.create_task(pool.call(name, reward_input(way)))
        if "child" in way:
            await until(lambda: len(processes()) > 2)
        reply = await hung
        assert (reply.ok, reply.error_code) == (False, "timeout"), name
        assert reply.error is not None
        assert reply.error.startswith(f"reward function {name!r} did not answer within its timeout of 0.5 s")
        assert reply.latency_s < 5
        # Asked again while the replacement still starts.
        again = await pool.call(name, reward_input("well"))
        assert again.output is not None, again.error
        assert (again.output.model_extra or {})["pid"] not in old
        await until(lambda: len(processes()) == 2 and not processes() & old)

    async with pool:
        await asyncio.gather(*(hang(class_name, way) for class_name, way in HANGS))
    assert processes_of(job_id) == []


def reward_input(ground_truth: str) -> RewardInput:
    return RewardInput(agent_output=AgentOutput(), ground_truth=ground_truth)


async def test_an_async_function_that_can_be_cancelled_keeps_its_process(start_pool: StartPool) -> None:
    bench = await start_pool(
        """
import asyncio, os
class F(AbstractRewardProcessor):
    async def process(self, input):
        if input.ground_truth == "hang":
            await asyncio.sleep(60)
        return {"reward": {"reward_score": 1}, "pid": os.getpid()}
""",
        timeout=0.5,
    )
    before = await bench.reward()
    reply = await bench.reward("hang")
    assert reply.error_code == "timeout"
    after = await bench.reward()
    assert after.output.model_extra["pid"] == before.output.model_extra["pid"]


async def test_other_calls_of_a_stuck_worker_may_finish(
    start_pool: StartPool, until: Until, processes_of: ProcessesOf, tmp_path: Path
) -> None:
    bench = await start_pool(
        """
import os, time
class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "hang":
            time.sleep(0.7)
            print("half of the time is over", flush=True)
            time.sleep(60)
        while input.ground_truth == "wait" and not os.path.exists("go"):
            time.sleep(0.01)
        return {"reward": {"reward_score": 1}, "pid": os.getpid()}
""",
        timeout=1.5,
    )
    old = (await bench.reward()).output.model_extra["pid"]
    hung = asyncio.create_task(bench.reward("hang"))
    await bench.line("half of the time")
    waiting = asyncio.create_task(bench.reward("wait"))
    assert (await hung).error_code == "timeout"
    (tmp_path / "go").touch()
    finished, fresh = await asyncio.gather(waiting, bench.reward())
    assert finished.output.model_extra["pid"] == old
    assert fresh.output.model_extra["pid"] != old
    await until(lambda: old not in processes_of(bench.job_id))


CRASHES = """
import ctypes, os, sys
class F(AbstractRewardProcessor):
    def setup(self):
        if os.path.exists("broken"):
            print("the licence has expired", file=sys.stderr)
            raise OSError("no licence")
    async def process(self, input):
        way = input.ground_truth
        if way == "exit":
            print("about to leave", file=sys.stderr)
            os._exit(3)
        if way == "segfault":
            ctypes.string_at(0)
        if way == "kill":
            os.kill(os.getpid(), 9)
        return {"reward": {"reward_score": 1}, "pid": os.getpid()}
"""


async def test_a_crash_is_a_lost_worker_and_the_next_calls_have_a_new_one(start_pool: StartPool) -> None:
    bench = await start_pool(CRASHES)
    for way, told in (
        ("exit", "the worker process of function 'f' exited with status 3; its last lines:\nabout to leave"),
        ("segfault", "the worker process of function 'f' was killed by SIGSEGV"),
        ("kill", "the worker process of function 'f' was killed by SIGKILL"),
    ):
        reply = await bench.reward(way)
        assert (reply.ok, reply.error_code) == (False, "worker_lost")
        assert reply.error.startswith(told)
    pids = set()
    for _ in range(200):
        reply = await bench.reward()
        assert reply.ok
        pids.add(reply.output.model_extra["pid"])
    assert len(pids) == 1


async def test_a_worker_that_does_not_start_again_is_told_at_once(
    start_pool: StartPool, tmp_path: Path
) -> None:
    bench = await start_pool(CRASHES)
    (tmp_path / "broken").touch()
    await bench.reward("exit")
    replies = await asyncio.gather(*(bench.reward() for _ in range(3)))
    assert {reply.error_code for reply in replies} == {"worker_lost"}
    assert "failed to start again 3 times in a row" in replies[0].error
    assert "OSError: no licence" in replies[0].error
    again = await bench.reward()
    assert again.error_code == "worker_lost"
    assert again.latency_s < 0.5


async def test_a_broken_function_is_tried_again_after_a_while(
    start_pool: StartPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strop.workers.worker_pool._MAX_STARTS", 1)
    monkeypatch.setattr("strop.workers.worker_pool._COOL_DOWN_S", 0.0)
    bench = await start_pool(CRASHES)
    (tmp_path / "broken").touch()
    await bench.reward("exit")
    assert (await bench.reward()).error_code == "worker_lost"
    (tmp_path / "broken").unlink()
    assert (await bench.reward()).ok


async def test_fifty_megabytes_of_output_stall_nothing(start_pool: StartPool) -> None:
    bench = await start_pool(
        """
import os, sys
class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "lines":
            for _ in range(10_000):
                sys.stdout.write("x" * 2499 + "\\n")
        if input.ground_truth == "one line":
            sys.stderr.write("y" * 25_000_000)
            sys.stderr.write("\\n")
        if input.ground_truth:
            print("done", input.ground_truth)
        return {"reward": {"reward_score": 1}}
"""
    )
    for way in ("lines", "one line"):
        replies = await asyncio.gather(bench.reward(way), *(bench.reward() for _ in range(5)))
        assert all(reply.ok for reply in replies)
        await bench.line(f"done {way}")
    await bench.line("the line has 25000000 bytes")
    full = [line for line in bench.lines if line == ("function:f", "stdout", "x" * 2499)]
    assert len(full) == 10_000
    assert max(len(text) for _, _, text in bench.lines) < 20_000


async def test_output_of_c_code_and_of_children_becomes_log_lines(start_pool: StartPool) -> None:
    bench = await start_pool(
        """
import os, subprocess
class F(AbstractRewardProcessor):
    def process(self, input):
        os.write(1, b"written below Python\\n")
        subprocess.run(["sh", "-c", "echo from a child >&2"])
        print("分数")
        return {"reward": {"reward_score": 1}}
"""
    )
    await bench.reward()
    assert await bench.line("below Python") == ("function:f", "stdout", "written below Python")
    assert await bench.line("from a child") == ("function:f", "stderr", "from a child")
    assert await bench.line("分数") == ("function:f", "stdout", "分数")


async def test_what_a_function_prints_is_never_taken_for_an_event(start_pool: StartPool) -> None:
    bench = await start_pool(
        """
print('{"event": "ready", "port": 1, "func_type": "rollout"}', flush=True)
class F(AbstractRewardProcessor):
    def process(self, input):
        print('{"event": "stuck"}', flush=True)
        return {"reward": {"reward_score": 1}}
"""
    )
    assert (await bench.reward()).ok
    assert await bench.line("ready") == (
        "function:f",
        "stdout",
        '{"event": "ready", "port": 1, "func_type": "rollout"}',
    )


async def test_a_listener_that_raises_does_not_stall_the_worker(
    start_pool: StartPool, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = await start_pool(
        """
class F(AbstractRewardProcessor):
    def process(self, input):
        for _ in range(2000):
            print("z" * 100)
        return {"reward": {"reward_score": 1}}
"""
    )

    class Full(list[Any]):
        def append(self, item: Any, /) -> None:
            raise OSError("disk full")

    def refuse(*line: str) -> None:
        Full().append(line)

    (worker,) = bench.pool._instances["f"]._pool.workers
    worker._on_line = refuse
    assert (await bench.reward()).ok
    assert "a log line was lost: OSError('disk full')" in capsys.readouterr().err
