"""Ark's `rl_types`: what a `reward_fn` imports to say what it found. The names are Ark's."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class RewardStatus(StrEnum):
    """What is to become of a sample's whole group."""

    SUCCESS = "success"
    FAILURE = "failure"
    """Tried again; if it stays so, the job ends with the error."""
    RETRY = "retry"
    """Tried again; if it stays so, the sample is dropped."""
    DISCARD = "discard"
    """The sample is dropped at once."""


@dataclass(slots=True)
class RewardFunctionResult:
    """One reward a completion, in their order; metrics of the call; how it went."""

    rewards: list[float]
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    status: RewardStatus | str = RewardStatus.SUCCESS
    error: str | None = None
