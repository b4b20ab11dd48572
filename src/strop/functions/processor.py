"""Input -> output: the classes that a user derives from to write a rollout, a reward or a group reward.

The names are DashScope's, so that a class written for that service runs here. A worker makes one object
without arguments, calls `setup` once and `process` for every call; the object lives as long as the worker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from concurrent.futures import Executor
from typing import ClassVar, Generic, TypeVar

from strop.functions.sub_rewards import RewardProcessorMeta, collect, new_executor, prefixed_metrics
from strop.functions.sub_rewards import weighted_sum as sum_by_weight
from strop.functions.sub_rewards import weights as weights_of
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
    code_of_raise: ClassVar[str] = "exception"
    """The `error_code` of a call that raised."""
    speaks_ark: ClassVar[bool] = False
    """Whether a request may be one of Ark's, and is then answered as Ark answers."""

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
    """Scores one agent output, in `process` or, with `@reward_func`, by its parts.

    A subclass with an `__init__` of its own need not call this one's.

    >>> class Exact(AbstractRewardProcessor):
    ...     def process(self, input: RewardInput) -> RewardOutput:
    ...         answer = input.agent_output.messages[-1]["content"]
    ...         return RewardOutput(reward={"reward_score": float(answer == input.ground_truth)})
    """

    func_type = FunctionType.REWARD
    executor: Executor | None = None
    _owns_executor = False
    _reward_id: ClassVar[str] = "default"
    _reward_meta: RewardProcessorMeta | None = None

    def __init__(self, executor: Executor | None = None) -> None:
        """`executor` runs the parts that are plain functions; threads of its own where none is given."""
        self.executor = executor

    @property
    def reward_meta(self) -> RewardProcessorMeta:
        """The parts of this object; of none other, of its class or not."""
        if self._reward_meta is None:
            self._reward_meta = collect(self, self._reward_id)
        return self._reward_meta

    @property
    def threads(self) -> Executor:
        """Where parts that are plain functions run."""
        if self.executor is None:
            self.executor, self._owns_executor = new_executor(), True
        return self.executor

    def get_weights(self) -> dict[str, float]:
        """The weight of each part by its name."""
        return weights_of(self.reward_meta)

    def get_scores(self, sub_rewards: Mapping[str, RewardOutput]) -> dict[str, float]:
        """The score of each part by its name."""
        return {name: output.reward.reward_score for name, output in sub_rewards.items()}

    def get_total(self, sub_rewards: Mapping[str, RewardOutput]) -> float:
        """The sum of score times weight.

        Raises:
            ValueError: a name that no part has.
        """
        return sum_by_weight(sub_rewards, self.reward_meta)

    def get_reward_metrics(self, sub_rewards: Mapping[str, RewardOutput]) -> dict[str, float]:
        """Every part's metrics, as `part.metric`."""
        return prefixed_metrics(sub_rewards)

    def shutdown(self) -> None:
        """End the threads that this object has started; those it was given are not its own to end."""
        if self.executor is not None and self._owns_executor:
            self.executor.shutdown(wait=True)
            self.executor, self._owns_executor = None, False


class AbstractGroupRewardProcessor(AbstractProcessor[GroupRewardInput, GroupRewardOutput]):
    """Scores all agent outputs of one sample together: one reward for each, in their order."""

    func_type = FunctionType.GROUP_REWARD
