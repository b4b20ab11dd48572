"""Exits as a script does."""

import sys

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    async def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        sys.exit(4)
