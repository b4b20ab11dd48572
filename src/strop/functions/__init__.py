"""What a user writes: a class with `setup` once and `process` a call; and how it is found by its name."""

from strop.functions.loading import load_processor
from strop.functions.metric_weights import add_up, take_weights
from strop.functions.processor import (
    AbstractGroupRewardProcessor,
    AbstractProcessor,
    AbstractRewardProcessor,
    AbstractRolloutProcessor,
)
from strop.functions.sub_rewards import RewardProcessorMeta, aggregate_func, reward_func, sub_reward_func
from strop.functions.tracebacks import user_traceback, where_raised
from strop.functions.validation import validation_text

__all__ = [
    "AbstractGroupRewardProcessor",
    "AbstractProcessor",
    "AbstractRewardProcessor",
    "AbstractRolloutProcessor",
    "RewardProcessorMeta",
    "add_up",
    "aggregate_func",
    "load_processor",
    "reward_func",
    "sub_reward_func",
    "take_weights",
    "user_traceback",
    "validation_text",
    "where_raised",
]
