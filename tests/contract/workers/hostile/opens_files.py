"""Opens five thousand files and never closes one."""

import os

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        kept = []
        for _ in range(5000):
            kept.append(open(os.devnull))  # noqa: SIM115 - that is the hostility
        raise ValueError("opened them all")
