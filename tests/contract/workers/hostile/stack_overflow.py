"""Recurses in C with the interpreter's guard taken away."""

import sys

from strop import AbstractRewardProcessor


class Endless:
    def __repr__(self):
        return f"{self!r}"


class F(AbstractRewardProcessor):
    def process(self, input):
        if input.ground_truth == "well":
            return {"reward": {"reward_score": 1}}
        sys.setrecursionlimit(10**9)
        return repr(Endless())
