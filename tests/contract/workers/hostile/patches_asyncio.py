"""Replaces functions of asyncio by nothing."""

import asyncio

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        for name in ("wait", "create_task", "ensure_future", "get_running_loop", "sleep"):
            setattr(asyncio, name, None)
        raise ValueError("patched")
