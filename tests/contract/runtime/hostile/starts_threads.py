"""Starts threads that never end."""

import threading
import time

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        while True:
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
