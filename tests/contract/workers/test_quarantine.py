"""One crashing row among many in flight: its siblings lose one attempt and no more."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from strop import AgentOutput, RequestMetadata, RewardInput
from strop.config.job import FunctionConfig
from strop.rl.reward import RewardPlan, reward
from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import Group, Trajectory, Turn

StartPool = Callable[..., Awaitable[Any]]
Until = Callable[..., Awaitable[None]]
ProcessesOf = Callable[..., list[int]]

CRASHES = """
import asyncio, os, time
class F(AbstractRewardProcessor):
    async def process(self, input):
        who = input.request_metadata.rollout_id
        with open("calls", "a") as file:
            file.write(who + "\\n")
        if who == "bad":
            while open("calls").read().count("\\n") < 8 and not os.path.exists("crashed"):
                await asyncio.sleep(0.01)
            open("crashed", "w").close()
            os._exit(3)
        while not os.path.exists("crashed"):
            await asyncio.sleep(0.01)
        return {"reward": {"reward_score": 1}, "pid": os.getpid()}
"""


def asked(who: str) -> RewardInput:
    ids = RequestMetadata(job_id="j", sample_id="s", rollout_id=who, attempt_id="a1")
    return RewardInput(agent_output=AgentOutput(), request_metadata=ids)


async def test_siblings_of_a_crash_are_tried_again_alone_and_come_out_well(
    start_pool: StartPool, tmp_path: Path, until: Until, processes_of: ProcessesOf
) -> None:
    bench = await start_pool(CRASHES)
    everyone = [f"good{number}" for number in range(7)] + ["bad"]
    first = await asyncio.gather(*(bench.pool.call("f", asked(who)) for who in everyone))
    assert {reply.error_code for reply in first} == {"worker_lost"}
    again = await asyncio.gather(*(bench.pool.call("f", asked(who)) for who in everyone))
    assert [reply.ok for reply in again] == [True] * 7 + [False]
    assert again[-1].error_code == "worker_lost"
    assert "exited with status 3" in again[-1].error
    # The isolated worker closes behind the last of them; a reaper and the worker of the crowd are left.
    await until(lambda: len(processes_of(bench.job_id)) == 2)
    calls = (tmp_path / "calls").read_text().split()
    assert [calls.count(who) for who in everyone] == [2] * 8


async def test_others_go_on_beside_a_row_that_keeps_crashing(start_pool: StartPool, tmp_path: Path) -> None:
    bench = await start_pool(CRASHES)
    (tmp_path / "crashed").touch()
    pids = set()
    assert (await bench.pool.call("f", asked("bad"))).error_code == "worker_lost"
    for number in range(3):
        crash, good = await asyncio.gather(
            bench.pool.call("f", asked("bad")), bench.pool.call("f", asked(f"good{number}"))
        )
        assert (crash.error_code, good.ok) == ("worker_lost", True)
        pids.add(good.output.model_extra["pid"])
    assert len(pids) == 1


async def test_in_the_flow_a_crash_costs_its_own_rollout_only(start_pool: StartPool) -> None:
    bench = await start_pool(CRASHES)
    turn = Turn(
        index=0,
        prompt_ids=(1,),
        completion_ids=(2,),
        behaviour_logprobs=(-1.0,),
        policy_versions=(0,),
        temperature=1.0,
        finish_reason=FinishReason.STOP,
        messages=(),
        response={},
        latency_s=0.0,
    )
    members = tuple(
        Trajectory(
            rollout_id=who,
            attempt_id="a1",
            group_id="g",
            sample_id="s",
            attempts=1,
            status=TaskStatus.SUCCESS,
            turns=(turn,),
        )
        for who in (*(f"good{number}" for number in range(7)), "bad")
    )
    function = FunctionConfig.model_validate(
        {"type": "reward", "name": "f", "fcmodel": {"classpath": "functions/f.py:F"}}
    )
    plan = RewardPlan(job_id="j", functions=(function,), group_functions=(), max_attempts=2)
    sample = Sample(sample_id="s", row=1, messages=[])
    (scored,) = await reward([Group(group_id="g", sample=sample, trajectories=members)], plan, bench.pool)
    assert [one.reward for one in scored.trajectories] == [1.0] * 7 + [None]
    assert scored.trajectories[-1].error_code == "worker_lost"
