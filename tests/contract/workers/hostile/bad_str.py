"""Raises an exception that cannot be put into words."""

from strop import AbstractRewardProcessor


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("mute")

    __repr__ = __str__


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        raise Mute
