"""From start to close: nothing half-started, nothing left over, whoever dies."""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self, cast

import aiohttp
import pytest

from strop import AgentOutput, RewardInput
from strop.config.job import FunctionConfig
from strop.errors import FunctionError
from strop.workers.functions import FunctionPool
from strop.workers.instance import Instance
from strop.workers.spec import WorkerSpec

StartPool = Callable[..., Awaitable[Any]]
Until = Callable[..., Awaitable[None]]
ProcessesOf = Callable[..., list[int]]

GOOD = """
from strop import *
import asyncio, os, subprocess
class Good(AbstractRewardProcessor):
    async def process(self, input):
        if input.ground_truth == "children":
            subprocess.Popen(["sleep", "60"])
            subprocess.Popen(["sleep", "60"], start_new_session=True)
            subprocess.Popen(["sh", "-c", "sleep 60 &"], start_new_session=True).wait()
        if input.ground_truth == "wait":
            print("waiting", flush=True)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                print("cancelled", flush=True)
                raise
        return {"reward": {"reward_score": 1}}
class Typed(AbstractRolloutProcessor):
    async def process(self, input): ...
class Slow(AbstractRewardProcessor):
    def setup(self):
        print("loading", flush=True)
        __import__("time").sleep(60)
    def process(self, input): ...
class Dies(AbstractRewardProcessor):
    def setup(self):
        print("out of memory", file=__import__("sys").stderr)
        os._exit(9)
    def process(self, input): ...
"""
PAYLOAD = RewardInput(agent_output=AgentOutput())


def config(class_name: str, func_type: str = "reward", **fields: Any) -> FunctionConfig:
    classpath = {"classpath": f"functions.good.{class_name}"}
    return FunctionConfig.model_validate({"type": func_type, "fcmodel": classpath, **fields})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "good.py").write_text(GOOD)
    return tmp_path


def pool_of(root: Path, job_id: str, *configs: FunctionConfig, **limits: float) -> FunctionPool:
    return FunctionPool(configs, root=root, job_id=job_id, on_line=lambda *_: None, **limits)


async def test_every_function_that_cannot_start_is_told_and_nothing_is_left(
    root: Path, processes_of: ProcessesOf
) -> None:
    job_id = f"job-{uuid.uuid4()}"
    pool = pool_of(root, job_id, config("Good"), config("Godo"), config("Typed"), config("Dies"))
    with pytest.raises(FunctionError) as caught:
        await pool.start()
    text = str(caught.value)
    assert "no class 'Godo' in functions/good.py\n  fix: did you mean 'Good'?" in text
    assert "function 'Typed' is configured as reward, but Typed is a rollout processor" in text
    assert (
        "the worker process of function 'Dies' exited with status 9; its last lines:\nout of memory" in text
    )
    assert processes_of(job_id) == []


async def test_a_setup_that_takes_too_long_is_told(root: Path, processes_of: ProcessesOf) -> None:
    job_id = f"job-{uuid.uuid4()}"
    pool = pool_of(root, job_id, config("Slow"), start_limit_s=1.5)
    with pytest.raises(FunctionError, match=r"function 'Slow' was not ready after 1\.5 s"):
        await pool.start()
    assert processes_of(job_id) == []


async def test_functions_start_side_by_side(root: Path) -> None:
    configs = [config("Good", name=f"good-{index}") for index in range(3)]
    async with pool_of(root, "job", *configs) as pool:
        replies = await asyncio.gather(*(pool.call(one.label, PAYLOAD) for one in configs))
    assert all(reply.ok for reply in replies)


async def test_closing_leaves_no_process_not_even_daemons(
    root: Path, processes_of: ProcessesOf, until: Until
) -> None:
    job_id = f"job-{uuid.uuid4()}"
    async with pool_of(root, job_id, config("Good")) as pool:
        reply = await pool.call("Good", PAYLOAD.model_copy(update={"ground_truth": "children"}))
        assert reply.ok
        await until(lambda: len(processes_of(job_id)) == 5)  # reaper, worker and three sleeps
    assert processes_of(job_id) == []
    await pool.close()


async def test_closing_answers_the_calls_in_flight(root: Path, until: Until) -> None:
    lines: list[str] = []
    pool = FunctionPool(
        [config("Good")], root=root, job_id="job", on_line=lambda _c, _s, text: lines.append(text)
    )
    await pool.start()
    call = asyncio.create_task(pool.call("Good", PAYLOAD.model_copy(update={"ground_truth": "wait"})))
    await until(lambda: "waiting" in lines)
    await pool.close()
    reply = await call
    assert (reply.ok, reply.error_code) == (False, "worker_lost")


async def test_giving_up_a_call_cancels_the_async_function(root: Path, until: Until) -> None:
    lines: list[str] = []
    pool = FunctionPool(
        [config("Good")], root=root, job_id="job", on_line=lambda _c, _s, text: lines.append(text)
    )
    async with pool:
        call = asyncio.create_task(pool.call("Good", PAYLOAD.model_copy(update={"ground_truth": "wait"})))
        await until(lambda: "waiting" in lines)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: "cancelled" in lines)
        assert (await pool.call("Good", PAYLOAD)).ok


async def test_giving_up_a_sync_call_that_never_ends_replaces_the_worker(
    root: Path, until: Until, processes_of: ProcessesOf
) -> None:
    (root / "forever.py").write_text(
        """
import time
from strop import *
class Forever(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "wait":
            print("waiting", flush=True)
            time.sleep(60)
        return {"reward": {"reward_score": 1}}
"""
    )
    job_id = f"job-{uuid.uuid4()}"
    lines: list[str] = []
    one = FunctionConfig.model_validate(
        {"type": "reward", "name": "f", "timeout": 0.5, "fcmodel": {"classpath": "forever.Forever"}}
    )
    pool = FunctionPool([one], root=root, job_id=job_id, on_line=lambda _c, _s, text: lines.append(text))
    async with pool:
        old = set(processes_of(job_id))
        call = asyncio.create_task(pool.call("f", PAYLOAD.model_copy(update={"ground_truth": "wait"})))
        await until(lambda: "waiting" in lines)
        call.cancel()
        await until(lambda: not old & set(processes_of(job_id)))
        assert (await pool.call("f", PAYLOAD)).ok


PARENT = """
import asyncio, sys
from pathlib import Path
from strop import AgentOutput, RewardInput
from strop.workers.functions import FunctionPool
from strop.config.job import FunctionConfig
async def main():
    config = FunctionConfig.model_validate(
        {"type": "reward", "fcmodel": {"classpath": "functions.good.Good"}})
    pool = FunctionPool([config], root=Path(sys.argv[1]), job_id=sys.argv[2], on_line=lambda *_: None)
    await pool.start()
    reply = await pool.call("Good", RewardInput(agent_output=AgentOutput(), ground_truth="children"))
    print("up", reply.ok, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("fatal", [signal.SIGKILL, signal.SIGTERM])
async def test_workers_and_all_their_children_die_with_the_parent(
    root: Path, until: Until, processes_of: ProcessesOf, fatal: signal.Signals
) -> None:
    job_id = f"job-{uuid.uuid4()}"
    parent = subprocess.Popen(  # noqa: ASYNC220 - the test waits for its one line
        [sys.executable, "-c", PARENT, str(root), job_id], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent:
        assert parent.stdout.readline() == "up True\n"
        await until(lambda: len(processes_of(job_id)) == 5)
        parent.send_signal(fatal)
        await until(lambda: processes_of(job_id) == [])


def replaced(old: set[int], now: list[int]) -> bool:
    """Whether the old ones are gone and the pool has noticed: a successor is there.

    A process that ends loses its environment, and so leaves `now`, a moment before its sockets close; a call
    sent in that moment is lost with it, as it should be.
    """
    return bool(now) and not old & set(now)


async def test_a_worker_dies_with_its_reaper(root: Path, until: Until, processes_of: ProcessesOf) -> None:
    job_id = f"job-{uuid.uuid4()}"
    async with pool_of(root, job_id, config("Good")) as pool:
        old = set(processes_of(job_id))
        os.kill(min(old), signal.SIGKILL)
        await until(lambda: replaced(old, processes_of(job_id)))
        assert (await pool.call("Good", PAYLOAD)).ok


async def test_the_children_of_a_worker_whose_reaper_is_killed_are_gone_and_the_others_live(
    root: Path, until: Until, processes_of: ProcessesOf
) -> None:
    job_id, other_id = f"job-{uuid.uuid4()}", f"job-{uuid.uuid4()}"
    children = PAYLOAD.model_copy(update={"ground_truth": "children"})
    async with (
        pool_of(root, job_id, config("Good")) as pool,
        pool_of(root, other_id, config("Good")) as other,
    ):
        reaper = min(processes_of(job_id))
        assert (await pool.call("Good", children)).ok
        assert (await other.call("Good", children)).ok
        old, others = set(processes_of(job_id)), set(processes_of(other_id))
        assert len(old) == len(others) == 5
        os.kill(reaper, signal.SIGKILL)
        await until(lambda: replaced(old, processes_of(job_id)))
        assert set(processes_of(other_id)) == others
        assert (await pool.call("Good", PAYLOAD)).ok


class Busy:
    """What a worker answers when its queue is full."""

    status = 503

    async def read(self) -> bytes:
        return b'{"detail": "Server is busy, please try again later."}'

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass


class BusyFirst:
    """A client whose first requests meet a full queue."""

    def __init__(self, inner: aiohttp.ClientSession, num_refusals: int) -> None:
        self.inner = inner
        self.num_refusals = num_refusals

    def post(self, url: str, **arguments: Any) -> Any:
        if self.num_refusals > 0:
            self.num_refusals -= 1
            return Busy()
        return self.inner.post(url, **arguments)


@pytest.mark.parametrize(("num_refusals", "code", "attempts"), [(3, None, 4), (1000, "busy", None)])
async def test_a_busy_worker_is_asked_again_until_the_timeout(
    root: Path, num_refusals: int, code: str | None, attempts: int | None
) -> None:
    spec = WorkerSpec(name="good", classpath="functions.good.Good", root=root, timeout_s=1.0)
    async with aiohttp.ClientSession() as inner:
        client = cast("aiohttp.ClientSession", BusyFirst(inner, num_refusals))
        instance = Instance(
            spec, job_id="job", client=client, on_line=lambda *_: None, grace_s=1.0, start_limit_s=30.0
        )
        try:
            await instance.start()
            reply = await instance.call(PAYLOAD)
        finally:
            await instance.close()
    assert reply.error_code == code
    assert reply.ok is (code is None)
    assert reply.attempts == attempts or (attempts is None and 3 < reply.attempts < 20)
    assert reply.latency_s < 1.5
