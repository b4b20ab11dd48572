"""Starts six hundred threads that do not end."""

import threading
import time

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        for _ in range(600):
            threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        return None
