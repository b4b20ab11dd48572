"""Fills its folder for temporary files: 96 MiB."""

import tempfile
import time

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        for number in range(96):
            with open(f"{tempfile.gettempdir()}/{number}", "wb") as file:
                file.write(bytes(2**20))
        time.sleep(20)
        return None
