"""Trajectory -> score: is the answer right; and, within a group, was it reached briefly."""

from __future__ import annotations

import re

from strop import (
    AbstractGroupRewardProcessor,
    AbstractRewardProcessor,
    AgentOutput,
    GroupReward,
    GroupRewardInput,
    GroupRewardOutput,
    Reward,
    RewardInput,
    RewardOutput,
)

ANSWER = re.compile(r"ANSWER:\s*(-?[\d,]+(?:\.\d+)?)\s*\.?\s*$")


def is_right(output: AgentOutput, ground_truth: object) -> bool:
    """Whether the last message is `ANSWER: x` with the right x and nothing behind it."""
    last = (output.messages or [{}])[-1]
    match = ANSWER.search(str(last.get("content") or "")) if last.get("role") == "assistant" else None
    return match is not None and float(match.group(1).replace(",", "")) == float(str(ground_truth))


def num_written(output: AgentOutput) -> int:
    """Characters that the model wrote."""
    return sum(
        len(str(m.get("content") or "")) for m in output.messages or [] if m.get("role") == "assistant"
    )


class Correct(AbstractRewardProcessor):
    """1 for the right answer, 0 for any other. A wrong answer is a result, not a failure."""

    def process(self, input: RewardInput) -> RewardOutput:
        right = is_right(input.agent_output, input.ground_truth)
        return RewardOutput(reward=Reward(reward_score=1.0 if right else 0.0))


class Brief(AbstractGroupRewardProcessor):
    """1 for a right answer that is at most half as long again as the shortest right one of its group.

    Paying for length alone would teach silence; here only right answers are paid at all. A step instead of a
    slope, because every difference inside a group is a gradient: once all are right and brief there is none.
    """

    def process(self, input: GroupRewardInput) -> GroupRewardOutput:
        lengths = [
            num_written(output) if is_right(output, input.ground_truth) else None
            for output in input.agent_outputs
        ]
        shortest = min((length for length in lengths if length is not None), default=0)
        return GroupRewardOutput(
            reward=GroupReward(
                rewards=[
                    Reward(reward_score=1.0 if length and length <= 1.5 * shortest else 0.0)
                    for length in lengths
                ]
            )
        )
