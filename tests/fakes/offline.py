"""Rows of sequences -> packs and learners for the offline trainings, small enough to check by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fakes.learner import FakeLearner
from fakes.packs import sequence
from strop.pipeline.batch import pack
from strop.schema.batch import Batch, Pack
from strop.schema.example import Example

START_LOSS = 8.0


def example(
    name: str, prompt: Sequence[int], *answers: Sequence[int], weights: Sequence[float] = (), pairs=()
) -> Example:
    """A row with one prompt and its answers; a weight of 1 for each unless given."""
    return Example(
        example_id=name,
        row=1,
        sequences=tuple(
            sequence(prompt, answer, advantage=0.0, weight=weight, rollout_id=f"{name}/{index}")
            for index, (answer, weight) in enumerate(
                zip(answers, weights or [1.0] * len(answers), strict=True)
            )
        ),
        pairs=pairs,
    )


def packed(*examples: Example) -> list[Pack]:
    return [replace(pack(one.sequences), pairs=one.pairs) for one in examples]


class FakeOfflineLearner(FakeLearner):
    """Each update halves the loss; `remembered` are the ids of the answers it was asked the reference of."""

    def __init__(self) -> None:
        super().__init__()
        self.remembered: list[str] = []
        self.finite = True

    def remember_reference(self, packs: Sequence[Pack]) -> None:
        assert self.version == 0, "the reference is the start weights"
        self.remembered += [one.rollout_id for pack in packs for one in pack.sequences]

    def update(self, batch: Batch) -> Mapping[str, float]:
        loss = START_LOSS / 2**self.version
        if self.finite:
            super().update(batch)
        return {"actor/loss": loss, "lm/loss": loss, "actor/num_updates": float(self.finite)}

    def measure(self, packs: Sequence[Pack]) -> Mapping[str, float]:
        loss = START_LOSS / 2**self.version
        return {"actor/loss": loss, "lm/loss": loss, "lm/perplexity": 2.0}
