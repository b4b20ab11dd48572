"""A publisher that says the learner's version; `version` overrides it. `live`: not withdrawn since."""

from __future__ import annotations

from fakes.learner import FakeLearner


class FakePublisher:
    def __init__(self, learner: FakeLearner) -> None:
        self.learner = learner
        self.version: int | None = None
        self.published: list[int] = []
        self.live = False

    def publish(self) -> int:
        self.published.append(self.learner.version if self.version is None else self.version)
        self.live = True
        return self.published[-1]

    def withdraw(self) -> None:
        self.live = False
