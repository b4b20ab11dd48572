"""Gives NaN as a reward."""

import math

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        return {"reward": {"reward_score": math.nan}}
