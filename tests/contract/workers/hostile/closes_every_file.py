"""Closes every file of its process, its server's socket among them."""

import asyncio
import os

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    async def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        os.closerange(3, 5000)
        await asyncio.sleep(60)
        return None
