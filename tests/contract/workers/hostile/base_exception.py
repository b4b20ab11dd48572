"""Raises what no `except Exception` sees."""

from strop import AbstractRewardProcessor


class Doom(BaseException):
    pass


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        raise Doom("the end")
