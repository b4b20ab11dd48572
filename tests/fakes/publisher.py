"""A publisher that says the learner's version; `version` overrides it."""

from __future__ import annotations

from fakes.learner import FakeLearner


class FakePublisher:
    def __init__(self, learner: FakeLearner) -> None:
        self.learner = learner
        self.version: int | None = None
        self.published: list[int] = []

    def publish(self) -> int:
        self.published.append(self.learner.version if self.version is None else self.version)
        return self.published[-1]
