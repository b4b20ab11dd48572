"""What a user writes: a class with `setup` once and `process` a call; and how it is found by its name."""

from strop.functions.loading import load_processor
from strop.functions.processor import (
    AbstractGroupRewardProcessor,
    AbstractProcessor,
    AbstractRewardProcessor,
    AbstractRolloutProcessor,
)
from strop.functions.tracebacks import user_traceback, where_raised
from strop.functions.validation import validation_text

__all__ = [
    "AbstractGroupRewardProcessor",
    "AbstractProcessor",
    "AbstractRewardProcessor",
    "AbstractRolloutProcessor",
    "load_processor",
    "user_traceback",
    "validation_text",
    "where_raised",
]
