"""Cancels the task that it runs in."""

import asyncio

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    async def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        asyncio.current_task().cancel()
        await asyncio.sleep(60)
        return None
