"""Never comes out of its setup."""

from strop import AbstractRewardProcessor


class F(AbstractRewardProcessor):
    def setup(self):
        while True:
            pass

    def process(self, input): ...
