"""Leaves without a word."""

import os

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    async def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        os._exit(7)
