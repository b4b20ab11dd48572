"""Kills the process above it."""

import asyncio
import os
import signal

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    async def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        os.kill(os.getppid(), signal.SIGKILL)
        await asyncio.sleep(60)
        return None
