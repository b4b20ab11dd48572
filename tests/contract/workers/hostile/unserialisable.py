"""Gives an object that JSON has nothing for."""

import threading

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        return {"reward": {"reward_score": 1}, "lock": threading.Lock()}
