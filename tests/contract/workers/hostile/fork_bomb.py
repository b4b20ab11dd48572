"""Forks a hundred and fifty times, and its children stay."""

import os
import time

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        # A bomb that ends: a test must not take the machine with it when what it tests fails.
        for _ in range(150):
            if os.fork() == 0:
                time.sleep(20)
                os._exit(0)
        time.sleep(20)
        return None
