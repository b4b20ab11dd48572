"""Prints a hundred megabytes, then fails."""

import sys

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        for _ in range(1600):
            sys.stdout.write(("x" * 1023 + "\n") * 64)
        raise ValueError("printed enough")
