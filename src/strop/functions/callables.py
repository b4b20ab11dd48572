"""A plain function `f(input: RewardInput)` -> a reward class of ours that calls it.

For rewards that need neither `setup` nor a state: `def`, `async def`, an object that can be called, a
`functools.partial`, or a function that returns an awaitable; each gives a `RewardOutput` or a number.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from strop.functions.processor import AbstractProcessor, AbstractRewardProcessor
from strop.schema.function import RewardInput

Output = TypeVar("Output")


def is_reward_callable(found: object) -> bool:
    """Whether this can be called with one parameter, called `input`."""
    if isinstance(found, type) or not callable(found):
        return False
    try:
        parameters = inspect.signature(found).parameters
    except (TypeError, ValueError):
        return False
    return [name for name, one in parameters.items() if one.default is one.empty] == ["input"]


def hosted_callable(function: Callable[..., Any]) -> type[AbstractProcessor[Any, Any]]:
    """A class whose `process` is the function."""
    return type(
        name_of(function),
        (AbstractRewardProcessor,),
        {"process": method_of(function, lambda input: (input,), _output), "__module__": function.__module__},
    )


def method_of(
    function: Callable[..., Any],
    arguments: Callable[[Any], tuple[Any, ...]],
    output: Callable[[Any, Any], Output],
) -> Callable[[Any, Any], Any]:
    """A `process(self, input)`: `function` called with `arguments(input)`, and its result given to `output`.

    It is async where the function is; where only the call's result shows that, it gives a coroutine.
    """

    async def later(result: Awaitable[Any], input: Any) -> Output:
        return output(await result, input)

    def process(self: Any, input: Any) -> Any:
        result = function(*arguments(input))
        return later(result, input) if inspect.isawaitable(result) else output(result, input)

    async def process_async(self: Any, input: Any) -> Output:
        return output(await function(*arguments(input)), input)

    return process_async if _is_async(function) else process


def name_of(function: Callable[..., Any]) -> str:
    """For messages: a partial is called what it wraps, an object what its class is."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", None) or type(function).__name__


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _output(result: Any, input: RewardInput) -> Any:
    is_number = isinstance(result, int | float) and not isinstance(result, bool)
    return {"reward": {"reward_score": result}} if is_number else result
