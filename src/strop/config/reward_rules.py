"""Reward functions of a job -> what is wrong with presets and with Ark's mixing rules. For `config.loading`.

Parameters of presets are checked against the preset's own signature: a name that is unknown or a value that
cannot be meant is told before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strop.config.job import FunctionConfig
from strop.functions.preset_catalogue import preset_problems
from strop.schema.function import FunctionType

ARK_MAX_RULES = 5
ARK_WEIGHTS = (0.01, 1000.0)
ARK_STEP = 0.01

Complaint = tuple[int, tuple[str | int, ...], str, str | None]
"""Index of the function, key below it, what is wrong, the mend."""


def reward_rules(functions: Sequence[FunctionConfig]) -> Iterator[Complaint]:
    """Everything wrong that the schema cannot see."""
    for index, function in enumerate(functions):
        if function.preset is not None:
            for key, message, fix in preset_problems(function.preset, function.params):
                yield index, key, message, fix
    yield from _ark_rules(functions)


def _ark_rules(functions: Sequence[FunctionConfig]) -> Iterator[Complaint]:
    """A job with a `reward_fn` is mixed as Ark mixes: few rules, weights in steps."""
    rewards = [(index, one) for index, one in enumerate(functions) if one.type is not FunctionType.ROLLOUT]
    if not any(one.fcmodel.classpath.endswith((":reward_fn", ".reward_fn")) for _, one in rewards):
        return
    for index, _ in rewards[ARK_MAX_RULES:]:
        text = f"one reward too many: with Ark's reward_fn at most {ARK_MAX_RULES}, presets included"
        yield index, (), text, "merge some, or write them as reward classes"
    low, high = ARK_WEIGHTS
    for index, one in rewards:
        steps = one.weight / ARK_STEP
        if not low <= one.weight <= high or abs(steps - round(steps)) > 1e-6:
            text = f"{one.weight:g}: with Ark's reward_fn from {low:g} to {high:g} in steps of {ARK_STEP:g}"
            yield index, ("weight",), text, f"e.g. {min(max(round(steps), 1), 100_000) * ARK_STEP:g}"
