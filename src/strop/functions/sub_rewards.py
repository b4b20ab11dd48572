"""Decorated methods -> one reward: each method scores one side of an answer, the class adds the scores up.

The names are DashScope's (`reward_func`, `sub_reward_func`, `aggregate_func`), and so are the marks that
they leave, so that a class of the real package is read by the same code. What differs stands in
docs/rewards.md: a part that fails fails the whole, parts run side by side, and each object has its own parts.
"""

from __future__ import annotations

import abc
import asyncio
import contextvars
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from pydantic import BaseModel, ValidationError

from strop.functions.tracebacks import user_traceback, where_raised
from strop.functions.validation import validation_text
from strop.schema.function import Reward, RewardOutput, TaskStatus

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_MAX_THREADS = 128
"""Started when needed. A part that waits for a network must not keep the parts of other calls waiting."""


@dataclass(slots=True)
class SubRewardFunction:
    """One part of one object: `func` is bound to it."""

    name: str
    func: Callable[..., Any]
    weight: float


@dataclass(slots=True)
class AggregateFunction:
    func: Callable[..., Any]


@dataclass(slots=True)
class RewardProcessorMeta:
    """What the decorators said about one object. `weight`s may be changed before the first call."""

    processor_id: str
    sub_functions: dict[str, SubRewardFunction] = field(default_factory=dict[str, SubRewardFunction])
    aggregate_function: AggregateFunction | None = None


@overload
def reward_func(processor_id: _Class) -> _Class: ...
@overload
def reward_func(processor_id: str | None = None) -> Callable[[_Class], _Class]: ...
def reward_func(processor_id: type | str | None = None) -> Any:
    """Give a reward class the `process` that runs its parts and adds them up.

    Raises:
        TypeError: the class has no part, two parts of one name, or two methods that add up.

    >>> from strop import AbstractRewardProcessor
    >>> @reward_func("brief")
    ... class Brief(AbstractRewardProcessor):
    ...     @sub_reward_func("short", sub_weight=0.5)
    ...     def short(self, input):
    ...         return float(len(input.agent_output.messages[-1]["content"]) < 100)
    >>> Brief().get_weights()
    {'short': 0.5}
    """
    if isinstance(processor_id, type):
        return _scored_by_parts(processor_id, processor_id.__name__)

    def decorate(cls: type) -> Any:
        return _scored_by_parts(cls, processor_id or cls.__name__)

    return decorate


@overload
def sub_reward_func(name: _Function) -> _Function: ...
@overload
def sub_reward_func(name: str | None = None, sub_weight: float = 1.0) -> Callable[[_Function], _Function]: ...
def sub_reward_func(name: Callable[..., Any] | str | None = None, sub_weight: float = 1.0) -> Any:
    """Mark a method, `def` or `async def`, as one part of the reward: `(self, input)` -> its score.

    It returns a `RewardOutput`, or a plain number. Its name is the method's own unless given.

    Raises:
        TypeError: the weight is no finite number.
    """
    if callable(name):
        return _part(name, None, 1.0)
    given = cast("object", sub_weight)
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise TypeError(f"sub_weight: expected a finite number, found {sub_weight!r}")

    def decorate(function: Callable[..., Any]) -> Any:
        return _part(function, name, float(sub_weight))

    return decorate


@overload
def aggregate_func(func: _Function) -> _Function: ...
@overload
def aggregate_func(func: None = None) -> Callable[[_Function], _Function]: ...
def aggregate_func(func: Callable[..., Any] | None = None) -> Any:
    """Mark the method that makes one reward of all parts: `(self, sub_rewards)` -> `RewardOutput` or number.

    `sub_rewards` holds each part's `RewardOutput` by its name. Without such a method the reward is the sum of
    score times weight.
    """
    return _adder(func) if func is not None else _adder


def collect(processor: object, processor_id: str) -> RewardProcessorMeta:
    """The parts of one object, in the order of its methods' names.

    A subclass that overrides a part without decorating it again keeps the part's name and weight; one that
    sets it to None drops it. Of several methods that add up, that of the nearest class counts.
    """
    meta = RewardProcessorMeta(processor_id)
    for attribute, mark in _marked(type(processor), "_is_sub_reward_func").items():
        name = str(mark._sub_reward_name)
        func = getattr(processor, attribute)
        if func is not None:
            meta.sub_functions[name] = SubRewardFunction(name, func, float(mark._sub_weight))
    adder = next(iter(_adders(type(processor))), None)
    if adder is not None:
        meta.aggregate_function = AggregateFunction(getattr(processor, adder))
    return meta


async def score_parts(
    processor: Any, input: object, meta: RewardProcessorMeta, executor: Executor
) -> RewardOutput:
    """Run all parts side by side and add them up.

    Returns:
        The reward; FAILED with the names of the parts that raised or failed, whatever the others gave.
    Concurrency:
        Plain functions run in `executor`. Cancelling this waits for those of them that have begun: a thread
        cannot be stopped, and whoever cancels must learn that the user's code still runs.
    """
    parts = meta.sub_functions
    outcomes = await asyncio.gather(
        *(_attempt(f"sub-reward {name!r}", part.func, input, executor) for name, part in parts.items())
    )
    failures = [outcome for outcome in outcomes if isinstance(outcome, _Failure)]
    if failures:
        return _failed(failures)
    given = dict(zip(parts, outcomes, strict=True))
    adder = meta.aggregate_function
    if adder is None:
        return _sum(cast("dict[str, _Given]", given), meta)
    seen = {name: cast("_Given", outcome).seen for name, outcome in given.items()}
    whole = await _attempt(f"aggregate {_name(adder.func)!r}", adder.func, seen, executor)
    return _failed([whole]) if isinstance(whole, _Failure) else whole.output


def new_executor() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="sub-reward")


def weights(meta: RewardProcessorMeta) -> dict[str, float]:
    return {name: part.weight for name, part in meta.sub_functions.items()}


def weighted_sum(sub_rewards: Mapping[str, Any], meta: RewardProcessorMeta) -> float:
    """
    Raises:
        ValueError: a name that no part has.
    """
    total = 0.0
    for name, output in sub_rewards.items():
        part = meta.sub_functions.get(name)
        if part is None:
            known = list(meta.sub_functions)
            raise ValueError(f"Sub-reward function {name!r} is not registered. Available: {known}")
        total += output.reward.reward_score * part.weight
    return total


def prefixed_metrics(sub_rewards: Mapping[str, Any]) -> dict[str, float]:
    """Each part's metrics as `part.metric`."""
    metrics: dict[str, float] = {}
    for name, output in sub_rewards.items():
        own: dict[str, float] = output.reward.reward_metrics or {}
        metrics |= {f"{name}.{key}": value for key, value in own.items()}
    return metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """What a part gave: as the class's own code sees it, and as ours."""

    seen: Any
    output: RewardOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    text: str
    code: str


def _scored_by_parts(cls: Any, processor_id: str) -> Any:
    parts = _marked(cls, "_is_sub_reward_func")
    if not parts:
        raise TypeError(f"class {cls.__name__} has no method marked with @sub_reward_func")
    names = [str(mark._sub_reward_name) for mark in parts.values()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TypeError(f"class {cls.__name__} has two sub-rewards called {twice!r}; give each its own name")
    adders = _adders(cls)
    if len(adders) > 1:
        raise TypeError(
            f"class {cls.__name__} adds up in {' and in '.join(adders)}; keep one @aggregate_func"
        )
    if "process" in vars(cls):
        warnings.warn(
            f"{cls.__name__}.process is replaced: @reward_func gives the class one that runs its parts",
            stacklevel=3,
        )

    async def process(self: Any, input: Any) -> RewardOutput:
        return await score_parts(self, input, self.reward_meta, self.threads)

    cls.process = process
    cls._reward_id = processor_id
    return abc.update_abstractmethods(cls)


def _part(function: Any, name: str | None, weight: float) -> Any:
    function._is_sub_reward_func = True
    function._sub_reward_name = name or function.__name__
    function._sub_weight = weight
    return function


def _adder(function: Any) -> Any:
    function.is_aggregate_func = True
    return function


def _marked(cls: type, mark: str) -> dict[str, Any]:
    """Attributes that a class or one of its bases marked, with the function that has the nearest mark."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        for attribute, value in vars(base).items():
            if attribute not in found and hasattr(value, mark):
                found[attribute] = value
    return {name: found[name] for name in sorted(found) if getattr(cls, name) is not None}


def _adders(cls: type) -> list[str]:
    """The methods that add up, in the nearest class that has any."""
    for base in cls.__mro__:
        own = sorted(name for name, value in vars(base).items() if hasattr(value, "is_aggregate_func"))
        if own:
            return own
    return []


async def _attempt(
    what: str, func: Callable[..., Any], argument: object, executor: Executor
) -> _Given | _Failure:
    try:
        result = await _call(func, argument, executor)
    except Exception as error:  # noqa: BLE001 - a rollout: user code may raise anything
        print(user_traceback(error, Path.cwd()), file=sys.stderr)
        place = where_raised(error, Path.cwd())
        text = f"{what} raised {type(error).__name__}: {error}" + (f" ({place})" if place else "")
        return _Failure(text=text, code="exception")
    return _given(what, result)


async def _call(func: Callable[..., Any], argument: object, executor: Executor) -> Any:
    if inspect.iscoroutinefunction(func):
        return await func(argument)
    context = contextvars.copy_context()
    running: Future[Any] = executor.submit(context.run, func, argument)
    try:
        result = await asyncio.shield(asyncio.wrap_future(running))
    except asyncio.CancelledError:
        if not running.cancel():
            await asyncio.wait({asyncio.wrap_future(running)})
        raise
    return await result if inspect.isawaitable(result) else result


def _given(what: str, result: Any) -> _Given | _Failure:
    """Hold a part's answer against what it may be; FAILED stays FAILED."""
    try:
        if isinstance(result, BaseModel):
            output = RewardOutput.model_validate(result.model_dump())
        elif isinstance(result, dict):
            output = RewardOutput.model_validate(result)
        elif isinstance(result, int | float):
            output = RewardOutput(reward=Reward(reward_score=result))
        else:
            found = "None" if result is None else type(result).__name__
            return _Failure(
                text=f"{what} returned {found}; expected RewardOutput or a number", code="invalid_output"
            )
    except ValidationError as error:
        text = validation_text(error, show_values=True)
        return _Failure(text=f"{what} returned no valid RewardOutput: {text}", code="invalid_output")
    if output.status is TaskStatus.FAILED:
        return _Failure(
            text=f"{what} failed: {output.error or 'no error text'}", code=output.error_code or "failed"
        )
    return _Given(seen=result if isinstance(result, BaseModel) else output, output=output)


def _failed(failures: list[_Failure]) -> RewardOutput:
    return RewardOutput(
        reward=Reward(reward_score=0.0),  # the wire wants one; nobody reads it beside FAILED
        status=TaskStatus.FAILED,
        error="; ".join(failure.text for failure in failures),
        error_code=failures[0].code,
    )


def _sum(given: Mapping[str, _Given], meta: RewardProcessorMeta) -> RewardOutput:
    outputs = {name: one.output for name, one in given.items()}
    scores = {name: output.reward.reward_score for name, output in outputs.items()}
    return RewardOutput(
        reward=Reward(
            reward_score=weighted_sum(outputs, meta), reward_metrics={**scores, **prefixed_metrics(outputs)}
        )
    )


def _name(func: Callable[..., Any]) -> str:
    return getattr(func, "__name__", "aggregate")
