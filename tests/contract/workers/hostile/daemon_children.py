"""Leaves children in sessions of their own behind, then dies."""

import os
import subprocess

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        for _ in range(5):
            subprocess.Popen(["sh", "-c", "sleep 600 &"], start_new_session=True).wait()
        os.abort()
