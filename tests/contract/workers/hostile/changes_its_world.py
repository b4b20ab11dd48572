"""Goes elsewhere and forgets its environment."""

import os
import sys

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        os.chdir("/")
        os.environ.clear()
        sys.path.clear()
        return None
