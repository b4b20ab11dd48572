"""Sets an alarm that nobody handles."""

import asyncio
import signal

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    async def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        await asyncio.sleep(60)
        return None
