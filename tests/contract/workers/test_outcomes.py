"""What a function does, and what the flow is told of it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from strop import AgentOutput, GroupRewardInput, RewardInput, RolloutInput, TaskStatus
from strop.schema.function import GroupRewardOutput, RewardOutput, RolloutOutput

StartPool = Callable[..., Awaitable[Any]]

MANY_WAYS = """
import math, os, signal, sys
class F(AbstractRewardProcessor):
    def setup(self):
        self.pid = os.getpid()
    def process(self, input):
        way = input.ground_truth
        if way == "raise":
            raise ValueError("no digits in the answer")
        if way == "alarm":
            signal.signal(signal.SIGALRM, lambda *_: None)
        if way == "exit":
            sys.exit(4)
        if way == "none":
            return None
        if way == "text":
            return "0.7"
        if way == "nan":
            return {"reward": {"reward_score": math.nan}}
        if way == "score":
            return {"reward": {"reward_score": input.score}}
        if way == "failed":
            return RewardOutput(reward=Reward(reward_score=0.0), status="failed", error="judge is away",
                                error_code="E42")
        return RewardOutput(reward=Reward(reward_score=0.25, reward_metrics={"length": 3}), pid=self.pid)
"""


async def test_one_of_eight_raises_and_seven_are_scored(start_pool: StartPool) -> None:
    bench = await start_pool(MANY_WAYS)
    replies = await asyncio.gather(*(bench.reward("raise" if index == 3 else "ok") for index in range(8)))
    failed = replies.pop(3)
    assert [reply.output.reward.reward_score for reply in replies] == [0.25] * 7
    assert all(reply.ok for reply in replies)
    assert failed.output is None
    assert failed.error_code == "exception"
    assert failed.error == "ValueError: no digits in the answer (functions/f.py, line 10, in process)"
    component, stream, _ = await bench.line("ValueError: no digits")
    assert (component, stream) == ("function:f", "stderr")


@pytest.mark.parametrize("is_async", [False, True])
async def test_wrong_outputs_failures_and_exits_are_told_apart(start_pool: StartPool, is_async: bool) -> None:
    source = MANY_WAYS.replace("def process", "async def process") if is_async else MANY_WAYS
    bench = await start_pool(source)
    expected = {
        "none": ("invalid_output", "reward function 'f' returned None; expected RewardOutput"),
        "text": ("invalid_output", "reward function 'f' returned str '0.7'; expected RewardOutput"),
        "nan": ("invalid_output", "reward.reward_score: expected a finite number, found nan"),
        "failed": ("E42", "judge is away"),
        "exit": ("exception", "SystemExit: 4"),
    }
    for way, (code, text) in expected.items():
        reply = await bench.reward(way)
        assert (reply.ok, reply.error_code) == (False, code)
        assert text in reply.error
    for wrong, found in (
        ("0.7", "str '0.7'"),
        (True, "bool True"),
        ([1], "list [1]"),
        (None, "NoneType None"),
    ):
        reply = await bench.reward("score", score=wrong)
        assert reply.error_code == "invalid_output"
        assert (
            f"'f' returned no valid RewardOutput: reward.reward_score: expected a number, found {found}"
            in (reply.error)
        )
    assert (await bench.reward("score", score=1)).output.reward.reward_score == 1.0
    assert (await bench.reward("score", score=0)).ok
    first, second = await bench.reward("ok"), await bench.reward("ok")
    assert first.output.model_extra["pid"] == second.output.model_extra["pid"]


async def test_signal_alarm_in_a_sync_function_fails_loudly(start_pool: StartPool) -> None:
    bench = await start_pool(MANY_WAYS)
    reply = await bench.reward("alarm")
    assert (reply.ok, reply.error_code) == (False, "exception")
    assert "ValueError: signal only works in main thread" in reply.error


async def test_a_group_of_another_length_is_told_with_both_counts(start_pool: StartPool) -> None:
    source = """
class F(AbstractGroupRewardProcessor):
    async def process(self, input):
        return GroupRewardOutput(reward=GroupReward(rewards=[Reward(reward_score=1.0)] * input.ground_truth))
"""
    bench = await start_pool(source, func_type="group_reward")
    payload = GroupRewardInput(agent_outputs=[AgentOutput()] * 3, ground_truth=3)
    reply = await bench.pool.call("f", payload)
    assert isinstance(reply.output, GroupRewardOutput)
    assert [reward.reward_score for reward in reply.output.reward.rewards] == [1.0, 1.0, 1.0]
    reply = await bench.pool.call("f", payload.model_copy(update={"ground_truth": 1}))
    assert (reply.ok, reply.error_code) == (False, "invalid_output")
    assert reply.error == "group_reward function 'f' returned 1 rewards for 3 agent outputs"


ROLLOUT = """
import os, sys
class F(AbstractRolloutProcessor):
    async def setup(self):
        self.prefix = "a"
    async def process(self, input):
        key = input.model_resource.api_key.get_secret_value()
        if input.ground_truth == "leak":
            print("using", key, "and", os.environ["JUDGE_KEY"])
            raise RuntimeError(f"401 for {key} and {os.environ['JUDGE_KEY']}")
        extra = {"key": len(key), "field": input.additional_field, "cwd": os.getcwd(), "path": sys.path[0],
                 "job": os.environ["STROP_JOB_ID"], "omp": os.environ["OMP_NUM_THREADS"],
                 "pythonpath": os.environ["PYTHONPATH"].split(os.pathsep)[0],
                 "sample": input.request_metadata.sample_id}
        return RolloutOutput(agent_output=AgentOutput(messages=input.messages, rollout_extra=extra))
"""


def rollout_input(**changes: Any) -> RolloutInput:
    values = {
        "messages": [{"role": "user", "content": "2+2"}],
        "model_resource": {"model_name": "m", "base_url": "http://x/v1", "api_key": "sk-0123456789"},
        "request_metadata": {"job_id": "j", "sample_id": "s7", "rollout_id": "r", "attempt_id": "a"},
        "additional_field": "any extra data you want",
    }
    return RolloutInput.model_validate({**values, **changes})


async def test_a_rollout_gets_its_key_its_extra_fields_and_its_surroundings(
    start_pool: StartPool, tmp_path: Path
) -> None:
    bench = await start_pool(ROLLOUT, func_type="rollout", env={"JUDGE_KEY": "judge-secret-1"})
    reply = await bench.pool.call("f", rollout_input())
    assert isinstance(reply.output, RolloutOutput)
    assert reply.output.status is TaskStatus.SUCCESS
    assert reply.output.agent_output is not None
    assert reply.output.agent_output.rollout_extra == {
        "key": 13,
        "field": "any extra data you want",
        "cwd": str(tmp_path),
        "path": str(tmp_path),
        "job": bench.job_id,
        "omp": "1",
        "pythonpath": str(tmp_path),
        "sample": "s7",
    }
    assert 0 < reply.latency_s < 10


async def test_secrets_reach_neither_logs_nor_errors(start_pool: StartPool) -> None:
    bench = await start_pool(ROLLOUT, func_type="rollout", env={"JUDGE_KEY": "judge-secret-1"})
    reply = await bench.pool.call("f", rollout_input(ground_truth="leak"))
    assert reply.error.startswith("RuntimeError: 401 for *** and *** (functions/f.py")
    assert (await bench.line("using"))[2] == "using *** and ***"
    await bench.line("RuntimeError: 401 for *** and ***")
    assert not any("sk-0123456789" in text or "judge-secret-1" in text for _, _, text in bench.lines)


async def test_an_input_of_another_type_is_refused(start_pool: StartPool) -> None:
    bench = await start_pool(MANY_WAYS)
    reply = await bench.pool.call("f", rollout_input())
    assert reply.error_code == "invalid_input"
    assert reply.error == (
        "function 'f' is a reward function; the input is a RolloutInput of func_type rollout"
    )
    mislabelled = RewardInput.model_validate({"func_type": "rollout", "agent_output": {}})
    assert (await bench.pool.call("f", mislabelled)).error_code == "invalid_input"


async def test_sixty_four_calls_at_once_are_all_answered(start_pool: StartPool) -> None:
    bench = await start_pool(
        """
import asyncio
class F(AbstractRewardProcessor):
    inside = 0
    def setup(self):
        self.all_here = asyncio.Event()
    async def process(self, input):
        self.inside += 1
        if self.inside == 64:
            self.all_here.set()
        await self.all_here.wait()
        return {"reward": {"reward_score": input.ground_truth}}
"""
    )
    replies = await asyncio.gather(*(bench.reward(index) for index in range(64)))
    assert [reply.output.reward.reward_score for reply in replies] == list(range(64))
    assert all(reply.attempts == 1 for reply in replies)


async def test_calls_beyond_the_concurrency_wait_their_turn_and_their_time(start_pool: StartPool) -> None:
    bench = await start_pool(
        """
import threading, time
class F(AbstractRewardProcessor):
    lock = threading.Lock()
    inside = most = 0
    def process(self, input):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(0.15)
        with self.lock:
            self.inside -= 1
        return {"reward": {"reward_score": self.most}}
""",
        concurrency=2,
        timeout=0.6,
    )
    replies = await asyncio.gather(*(bench.reward() for _ in range(12)))
    assert max(reply.output.reward.reward_score for reply in replies) == 2
    assert max(reply.latency_s for reply in replies) > 0.6


async def test_a_name_that_the_pool_has_not_is_an_error_of_the_caller(start_pool: StartPool) -> None:
    from strop.errors import FunctionError

    bench = await start_pool(MANY_WAYS)
    with pytest.raises(FunctionError, match="no running function 'ff'") as caught:
        await bench.reward(name="ff")
    assert caught.value.fix == "did you mean 'f'?"
    assert isinstance((await bench.reward("ok")).output, RewardOutput)
