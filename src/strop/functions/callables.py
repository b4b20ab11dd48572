"""A plain function `f(input: RewardInput)` -> a reward class of ours that calls it.

For rewards that need neither `setup` nor a state; `def` or `async def`, giving a `RewardOutput` or a number.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from strop.functions.processor import AbstractProcessor, AbstractRewardProcessor
from strop.schema.function import RewardInput


def is_reward_callable(found: object) -> bool:
    """Whether this is a function with one parameter, called `input`."""
    return inspect.isfunction(found) and tuple(inspect.signature(found).parameters) == ("input",)


def hosted_callable(function: Callable[..., Any]) -> type[AbstractProcessor[Any, Any]]:
    """A class whose `process` is the function."""

    def process(self: Any, input: RewardInput) -> Any:
        return _output(function(input))

    async def process_async(self: Any, input: RewardInput) -> Any:
        return _output(await function(input))

    is_async = inspect.iscoroutinefunction(function)
    members = {"process": process_async if is_async else process, "__module__": function.__module__}
    return type(function.__name__, (AbstractRewardProcessor,), members)


def _output(result: Any) -> Any:
    is_number = isinstance(result, int | float) and not isinstance(result, bool)
    return {"reward": {"reward_score": result}} if is_number else result
