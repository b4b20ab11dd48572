"""Reads memory that is not there."""

import ctypes

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        ctypes.string_at(0)
        return None
