"""Trajectory -> score: is what stands between ### ANSWER: and ### equal to the row's solution."""

from __future__ import annotations

import re
from fractions import Fraction

from strop import AbstractRewardProcessor, Reward, RewardInput, RewardOutput
from strop.observability import observe_processor

ANSWER = re.compile(r"###\s*ANSWER:\s*(.{1,100}?)\s*###")


class CalcXRewardProcessor(AbstractRewardProcessor):
    """`accuracy` and `format`; the job weighs them (`reward_metric_weight`)."""

    @observe_processor
    async def process(self, input: RewardInput) -> RewardOutput:
        output = input.agent_output
        last = (output.messages or [{}])[-1]
        text = str(last.get("content") or "") if last.get("role") == "assistant" else ""
        found = ANSWER.findall(text)
        solution = (output.rollout_extra or {})["solution"]
        right = float(len(found) == 1 and is_equal(found[0], solution))
        return RewardOutput(
            reward=Reward(
                reward_score=right, reward_metrics={"accuracy": right, "format": float(len(found) == 1)}
            )
        )


def is_equal(said: str, solution: str) -> bool:
    """By value where both are numbers.

    >>> is_equal("0.5", "1/2"), is_equal("about 0.5", "1/2")
    (True, False)
    """
    if "e" in said.lower():  # Fraction("1e999999999") is computed digit by digit, and nobody else has a turn
        return said == solution
    try:
        return Fraction(said.replace(",", "")) == Fraction(solution)
    except (ValueError, ZeroDivisionError):
        return said == solution
