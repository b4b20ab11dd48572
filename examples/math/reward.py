"""Ark's form of a reward: one call scores all completions of a sample."""

from typing import Any

from rl_types import RewardFunctionResult, RewardStatus


def reward_fn(
    context: dict[str, Any], sample: dict[str, Any], completions: list[dict[str, Any]]
) -> RewardFunctionResult:
    """1 for a box that is closed and holds something: the form, whatever the result."""
    rewards = [float(boxed(one["messages"]["content"])) for one in completions]
    cut = sum(one["finish_reason"] == "length" for one in completions)
    return RewardFunctionResult(rewards, {"cut": cut / len(completions)}, RewardStatus.SUCCESS)


def boxed(text: str) -> bool:
    _, found, rest = text.rpartition("\\boxed{")
    return bool(found) and bool(rest.partition("}")[0].strip()) and "}" in rest
