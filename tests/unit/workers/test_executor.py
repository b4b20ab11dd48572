"""One processor in its executor: outcomes, places, deadlines."""

import asyncio
import datetime
import json
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strop import (
    AbstractRewardProcessor,
    AbstractRolloutProcessor,
    AgentOutput,
    FunctionType,
    Reward,
    RewardInput,
    RewardOutput,
    RolloutInput,
    RolloutOutput,
)
from strop.errors import FunctionError
from strop.workers.executor import Executor, Failure, open_executor
from strop.workers.spec import WorkerSpec

INPUT = RewardInput(agent_output=AgentOutput())
ExecutorOf = Callable[..., Executor]


class Returns(AbstractRewardProcessor):
    """Returns what it was made with."""

    def __init__(self, result: Any) -> None:
        self.result = result

    async def process(self, input: RewardInput) -> Any:
        return self.result


class Rollout(AbstractRolloutProcessor):
    def __init__(self, result: Any) -> None:
        self.result = result

    def process(self, input: RolloutInput) -> Any:
        return self.result


def good() -> RewardOutput:
    return RewardOutput(reward=Reward(reward_score=0.5))


def spoiled() -> RewardOutput:
    output = good()
    output.reward.reward_score = math.nan
    return output


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (None, "returned None; expected RewardOutput"),
        ("0.7", "returned str '0.7'; expected RewardOutput"),
        (True, "returned bool True; expected RewardOutput"),
        (0.5, "returned float 0.5; expected RewardOutput"),
        ({}, "returned no valid RewardOutput: reward: Field required"),
        ({"reward": {"reward_score": "0.7"}}, "reward.reward_score: expected a number, found str '0.7'"),
        ({"reward": {"reward_score": True}}, "reward.reward_score: expected a number, found bool True"),
        ({"reward": {"reward_score": math.nan}}, "reward.reward_score: expected a finite number, found nan"),
        (spoiled(), "reward.reward_score: expected a finite number, found nan"),
        (
            {"reward": {"reward_score": 1, "reward_metrics": {"a": math.inf}}},
            "reward.reward_metrics.a: expected",
        ),
        (
            {"reward": {"reward_score": 1}, "x": [{"y": math.inf}]},
            "returned x.0.y that is not a finite number",
        ),
        (
            RewardOutput.model_validate({"reward": {"reward_score": 1}, "x": math.nan}),
            "returned x that is not",
        ),
        ({"reward": {"reward_score": 1}, "x": object()}, "returned what JSON cannot hold"),
        (RolloutOutput(), "returned no valid RewardOutput: reward: Field required"),
    ],
)
async def test_a_wrong_output_names_the_function_and_the_field(
    executor_of: ExecutorOf, result: Any, told: str
) -> None:
    outcome = await executor_of(Returns(result)).run(INPUT)
    assert isinstance(outcome, Failure)
    assert (outcome.http_status, outcome.error_code) == (500, "invalid_output")
    assert outcome.message.startswith("reward function 'f' returned")
    assert told in outcome.message


async def test_an_output_a_dict_and_extras_are_accepted(executor_of: ExecutorOf) -> None:
    expected = {
        "reward": {"reward_score": 0.5, "reward_metrics": None},
        "status": "success",
        "error": None,
        "error_code": None,
    }
    outcome = await executor_of(Returns(good())).run(INPUT)
    assert isinstance(outcome, bytes)
    assert json.loads(outcome) == expected
    outcome = await executor_of(Returns({"reward": Reward(reward_score=0.5), "note": "评"})).run(INPUT)
    assert isinstance(outcome, bytes)
    assert json.loads(outcome) == {**expected, "note": "评"}


async def test_values_that_json_has_no_type_for_become_text(executor_of: ExecutorOf) -> None:
    day = datetime.date(2024, 2, 29)
    payload = RolloutInput.model_validate(
        {"messages": [], "model_resource": {"model_name": "m", "base_url": "u", "api_key": "k"}}
    )
    outcome = await executor_of(Rollout({"agent_output": {"rollout_extra": {"day": day}}})).run(payload)
    assert isinstance(outcome, bytes)
    assert json.loads(outcome)["agent_output"]["rollout_extra"] == {"day": "2024-02-29"}


class Raises(AbstractRewardProcessor):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def process(self, input: RewardInput) -> RewardOutput:
        raise self.error


class RaisesAsync(Raises):
    async def process(self, input: RewardInput) -> RewardOutput:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise self.error


class Abort(BaseException):
    """As some libraries have it, to pass by `except Exception`."""


@pytest.mark.parametrize(
    "error",
    [ValueError("no digits"), KeyError("answer"), SystemExit(3), KeyboardInterrupt("by hand"), Abort("now")],
)
@pytest.mark.parametrize("kind", [Raises, RaisesAsync])
async def test_an_exception_is_a_failure_with_its_text(
    executor_of: ExecutorOf, kind: type[Raises], error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = await executor_of(kind(error)).run(INPUT)
    assert isinstance(outcome, Failure)
    assert (outcome.http_status, outcome.error_code, outcome.stuck) == (500, "exception", False)
    assert outcome.message.startswith(f"{type(error).__name__}: {error}")
    assert "in process)" in outcome.message
    assert type(error).__name__ in capsys.readouterr().err


class NotANumber(AbstractRewardProcessor):
    def process(self, input: RewardInput) -> RewardOutput:
        return RewardOutput(reward=Reward(reward_score=math.nan))


async def test_an_output_that_could_not_be_made_is_said_whole_in_one_line(
    executor_of: ExecutorOf,
) -> None:
    outcome = await executor_of(NotANumber()).run(INPUT)
    assert isinstance(outcome, Failure)
    text = "ValidationError: Reward: reward_score: expected a finite number, found nan ("
    assert outcome.message.startswith(text)
    assert "\n" not in outcome.message


async def test_a_stop_iteration_in_a_thread_does_not_hang(executor_of: ExecutorOf) -> None:
    outcome = await executor_of(Raises(StopIteration())).run(INPUT)
    assert isinstance(outcome, Failure)
    assert outcome.message.startswith("StopIteration")


async def test_a_coroutine_that_cancels_itself_is_an_exception(executor_of: ExecutorOf) -> None:
    outcome = await executor_of(RaisesAsync(asyncio.CancelledError())).run(INPUT)
    assert isinstance(outcome, Failure)
    assert outcome.error_code == "exception"
    assert "CancelledError" in outcome.message


async def test_a_plain_wrapper_around_an_async_process_is_awaited(executor_of: ExecutorOf) -> None:
    class Wrapped(AbstractRewardProcessor):
        def process(self, input: RewardInput) -> Any:
            async def inner() -> RewardOutput:
                return good()

            return inner()

    assert isinstance(await executor_of(Wrapped()).run(INPUT), bytes)


class Gated(AbstractRewardProcessor):
    """Waits for a gate; counts how many are inside."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.inside = 0
        self.most = 0
        self.cancelled = 0

    async def process(self, input: RewardInput) -> RewardOutput:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1
        return good()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - the condition is another component's
            await asyncio.sleep(0.001)


async def test_no_more_than_concurrency_run_and_the_queue_is_bounded(executor_of: ExecutorOf) -> None:
    processor = Gated()
    executor = executor_of(processor, concurrency=2)
    running = [asyncio.create_task(executor.run(INPUT)) for _ in range(102)]
    await until(lambda: processor.inside == 2)
    refused = await executor.run(INPUT)
    assert isinstance(refused, Failure)
    assert (refused.http_status, refused.error_code) == (503, "busy")
    processor.gate.set()
    outcomes = await asyncio.gather(*running)
    assert all(isinstance(outcome, bytes) for outcome in outcomes)
    assert processor.most == 2


async def test_a_call_that_waits_for_a_place_past_its_time_is_busy(executor_of: ExecutorOf) -> None:
    class Forever(Gated):
        async def process(self, input: RewardInput) -> RewardOutput:
            while True:
                try:
                    await self.gate.wait()
                    return good()
                except asyncio.CancelledError:
                    self.cancelled += 1

    processor = Forever()
    executor = executor_of(processor, concurrency=1, timeout_s=0.05)
    first, second = await asyncio.gather(executor.run(INPUT), executor.run(INPUT))
    assert isinstance(first, Failure)
    assert isinstance(second, Failure)
    assert (first.error_code, first.stuck) == ("timeout", True)
    assert (second.error_code, second.stuck) == ("busy", False)
    processor.gate.set()
    await until(lambda: processor.cancelled == 1)


async def test_an_async_call_past_its_time_is_cancelled_and_frees_its_place(
    executor_of: ExecutorOf,
) -> None:
    processor = Gated()
    executor = executor_of(processor, concurrency=1, timeout_s=0.05)
    outcome = await executor.run(INPUT)
    assert isinstance(outcome, Failure)
    assert (outcome.http_status, outcome.error_code, outcome.stuck) == (504, "timeout", False)
    assert outcome.message == "reward function 'f' did not answer within its timeout of 0.05 s"
    assert processor.cancelled == 1
    processor.gate.set()
    assert isinstance(await executor.run(INPUT), bytes)


class Blocking(AbstractRewardProcessor):
    def __init__(self) -> None:
        self.gate = threading.Event()
        self.began = threading.Event()

    def process(self, input: RewardInput) -> RewardOutput:
        self.began.set()
        self.gate.wait(10)
        return good()


async def test_a_sync_call_past_its_time_is_stuck_until_its_thread_ends(executor_of: ExecutorOf) -> None:
    processor = Blocking()
    executor = executor_of(processor, concurrency=1, timeout_s=0.05)
    outcome = await executor.run(INPUT)
    assert isinstance(outcome, Failure)
    assert (outcome.error_code, outcome.stuck) == ("timeout", True)
    processor.gate.set()
    assert isinstance(await executor.run(INPUT), bytes)


async def test_an_abandoned_async_call_is_cancelled(executor_of: ExecutorOf) -> None:
    processor = Gated()
    call = asyncio.create_task(executor_of(processor).run(INPUT))
    await until(lambda: processor.inside == 1)
    call.cancel()
    await until(lambda: processor.cancelled == 1)


async def test_an_abandoned_sync_call_that_outlives_its_time_is_reported(executor_of: ExecutorOf) -> None:
    processor = Blocking()
    executor = executor_of(processor, timeout_s=0.1)
    stuck = asyncio.Event()
    executor.on_stuck = stuck.set
    call = asyncio.create_task(executor.run(INPUT))
    await until(processor.began.is_set)
    call.cancel()
    await asyncio.wait_for(stuck.wait(), 5)
    processor.gate.set()


SOURCE = """
from strop import AbstractRewardProcessor
class Async(AbstractRewardProcessor):
    count = 0
    async def setup(self):
        self.count += 1
    def process(self, input): ...
class Fails(AbstractRewardProcessor):
    def setup(self):
        raise OSError("no model file")
    def process(self, input): ...
class Unmade(AbstractRewardProcessor):
    def __init__(self, judge): ...
    def process(self, input): ...
"""


def spec(root: Path, name: str, func_type: FunctionType | None = None) -> WorkerSpec:
    (root / "opened.py").write_text(SOURCE)
    return WorkerSpec(name=name.lower(), classpath=f"opened.py:{name}", root=root, func_type=func_type)


@pytest.fixture
def _own_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "opened", raising=False)


@pytest.mark.usefixtures("_own_imports")
async def test_opening_runs_setup_once_and_takes_the_type_from_the_class(tmp_path: Path) -> None:
    executor = await open_executor(spec(tmp_path, "Async"))
    assert executor.func_type is FunctionType.REWARD
    assert executor.class_name == "Async"
    assert executor._processor.count == 1  # pyright: ignore[reportPrivateUsage]


@pytest.mark.usefixtures("_own_imports")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Fails", "function 'fails': setup of 'opened.py:Fails' failed\nTraceback"),
        (
            "Fails",
            'File "opened.py", line 10, in setup\n    raise OSError("no model file")\nOSError: no model',
        ),
        ("Unmade", "function 'unmade': creating 'opened.py:Unmade' failed"),
    ],
)
async def test_a_failing_setup_or_constructor_shows_its_traceback(
    tmp_path: Path, name: str, told: str
) -> None:
    with pytest.raises(FunctionError) as caught:
        await open_executor(spec(tmp_path, name))
    assert told in str(caught.value)


@pytest.mark.usefixtures("_own_imports")
async def test_a_class_of_another_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FunctionError) as caught:
        await open_executor(spec(tmp_path, "Async", FunctionType.ROLLOUT))
    assert "configured as rollout, but Async is a reward processor" in str(caught.value)
