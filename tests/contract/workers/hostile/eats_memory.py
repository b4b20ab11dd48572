"""Takes memory in small pieces, half a gigabyte in all."""

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        kept = []
        for _ in range(128):
            kept.append(bytearray(2**22))
        raise ValueError("took it all")
