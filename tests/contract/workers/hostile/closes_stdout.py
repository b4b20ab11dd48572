"""Closes what it would have printed to."""

import os
import sys

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        sys.stdout.close()
        sys.stderr.close()
        os.close(1)
        os.close(2)
        raise ValueError("said to nobody")
