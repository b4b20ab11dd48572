"""What a user derives from."""

import inspect

import pytest

from strop import (
    AbstractGroupRewardProcessor,
    AbstractRewardProcessor,
    AbstractRolloutProcessor,
    FunctionType,
    RewardInput,
    RewardOutput,
)


def test_each_kind_knows_its_type() -> None:
    assert AbstractRolloutProcessor.func_type is FunctionType.ROLLOUT
    assert AbstractRewardProcessor.func_type is FunctionType.REWARD
    assert AbstractGroupRewardProcessor.func_type is FunctionType.GROUP_REWARD


def test_a_class_without_process_cannot_be_made() -> None:
    class Lazy(AbstractRewardProcessor):
        pass

    assert inspect.isabstract(Lazy)
    with pytest.raises(TypeError, match="process"):
        Lazy()  # pyright: ignore[reportAbstractUsage]


def test_setup_is_optional_and_process_may_be_plain_or_async() -> None:
    class Plain(AbstractRewardProcessor):
        def process(self, input: RewardInput) -> RewardOutput:
            return RewardOutput.model_validate({"reward": {"reward_score": 1}})

    class Async(AbstractRewardProcessor):
        async def setup(self) -> None:
            self.ready = True

        async def process(self, input: RewardInput) -> RewardOutput:
            return RewardOutput.model_validate({"reward": {"reward_score": 1}})

    assert Plain().setup() is None
    assert inspect.iscoroutinefunction(Async().process)
