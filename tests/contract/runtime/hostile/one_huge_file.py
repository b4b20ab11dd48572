"""Writes a file that grows for ever."""

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        with open("huge", "wb") as file:
            while True:
                file.write(bytes(2**20))
