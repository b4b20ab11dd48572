"""Loops in C and so holds the interpreter."""

import re

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        re.match("(a+)+$", "a" * 64 + "b")
        return None
