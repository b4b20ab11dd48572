"""A weight sync that says the version it was given; `version` overrides it. `live`: not asleep since."""

from __future__ import annotations

from strop.schema.weights import WeightsRef


class FakeWeightSync:
    def __init__(self) -> None:
        self.version: int | None = None
        self.pushed: list[int] = []
        self.live = False

    def push(self, weights: WeightsRef, *, version: int) -> int:
        assert weights.tensors is not None
        self.pushed.append(version if self.version is None else self.version)
        self.live = True
        return self.pushed[-1]

    def sleep(self) -> None:
        self.live = False
