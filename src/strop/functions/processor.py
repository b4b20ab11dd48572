"""Input -> output: the classes that a user derives from to write a rollout, a reward or a group reward.

The names are DashScope's, so that a class written for that service runs here. A worker makes one object
without arguments, calls `setup` once and `process` for every call; the object lives as long as the worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable
from typing import ClassVar, Generic, TypeVar

from strop.schema.function import (
    FunctionInput,
    FunctionOutput,
    FunctionType,
    GroupRewardInput,
    GroupRewardOutput,
    RewardInput,
    RewardOutput,
    RolloutInput,
    RolloutOutput,
)

_In = TypeVar("_In", bound=FunctionInput)
_Out = TypeVar("_Out", bound=FunctionOutput)


class AbstractProcessor(ABC, Generic[_In, _Out]):
    """What the three kinds share. Derive from one of them, not from this: it has no `func_type`."""

    func_type: ClassVar[FunctionType]

    def setup(self) -> Awaitable[None] | None:
        """Open clients, read files, load models; `def` or `async def`. Runs before the first call.

        Raises:
            Anything: the function does not start, and the traceback says why.
        """
        return None

    @abstractmethod
    def process(self, input: _In) -> Awaitable[_Out] | _Out:
        """Answer one call; `def` or `async def`.

        Returns:
            The output class of its kind, or a dict that validates as one. For an expected failure an output
            with `status=TaskStatus.FAILED` and `error`; a wrong answer is SUCCESS with a low reward.
        Raises:
            Anything: the call has failed, with the exception's text. It never becomes a reward of 0.
        Concurrency:
            `async def`: calls interleave on one event loop, so never block in it. `def`: calls run in threads
            of one process, as many at once as `runtime.concurrency` says; there `signal.alarm` raises.
        """


class AbstractRolloutProcessor(AbstractProcessor[RolloutInput, RolloutOutput]):
    """Runs an agent once on a sample, calling the policy at `input.model_resource`.

    >>> class Greet(AbstractRolloutProcessor):
    ...     async def process(self, input: RolloutInput) -> RolloutOutput:
    ...         return RolloutOutput(agent_output={"messages": input.messages})
    """

    func_type = FunctionType.ROLLOUT


class AbstractRewardProcessor(AbstractProcessor[RewardInput, RewardOutput]):
    """Scores one agent output.

    >>> class Exact(AbstractRewardProcessor):
    ...     def process(self, input: RewardInput) -> RewardOutput:
    ...         answer = input.agent_output.messages[-1]["content"]
    ...         return RewardOutput(reward={"reward_score": float(answer == input.ground_truth)})
    """

    func_type = FunctionType.REWARD


class AbstractGroupRewardProcessor(AbstractProcessor[GroupRewardInput, GroupRewardOutput]):
    """Scores all agent outputs of one sample together: one reward for each, in their order."""

    func_type = FunctionType.GROUP_REWARD
