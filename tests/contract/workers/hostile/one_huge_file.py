"""Writes a file of 128 MiB."""

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        with open("huge", "wb") as file:
            for _ in range(128):
                file.write(bytes(2**20))
        raise ValueError("wrote it all")
