"""Gives JSON that is nested a hundred thousand deep."""

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        deep = []
        for _ in range(100_000):
            deep = [deep]
        return {"reward": {"reward_score": 1}, "deep": deep}
