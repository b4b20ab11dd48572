"""Rows of sequences -> packs and learners for the offline trainings, small enough to check by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fakes.learner import FakeLearner
from fakes.packs import sequence
from strop.rl.batch import pack
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
    """Each update halves the loss, but not in the steps of `bad`, whose gradient is not finite.

    `remembered` are the ids of the answers it was asked the reference of, `seen` the step, version and first
    row of each update.
    """

    def __init__(self) -> None:
        super().__init__()
        self.remembered: list[str] = []
        self.bad: set[int] = set()
        self.seen: list[tuple[int, int, str]] = []

    def remember_reference(self, packs: Sequence[Pack], report: Callable[[int, int], None]) -> None:
        assert self.version == 0, "the reference is the start weights"
        for done in range(1, len(packs) + 1):
            report(done, len(packs))
        self.remembered += [one.rollout_id for pack in packs for one in pack.sequences]

    def update(self, batch: Batch) -> Mapping[str, float]:
        loss = START_LOSS / 2**self.version
        finite = batch.step not in self.bad
        row = batch.mini_batches[0].packs[0].sequences[0].rollout_id
        self.seen.append((batch.step, self.version, row))
        if finite:
            super().update(batch)
        counts = {"actor/num_updates": float(finite), "actor/skipped_updates": float(not finite)}
        return {"actor/loss": loss, "lm/loss": loss, **counts}

    def measure(self, packs: Sequence[Pack], report: Callable[[int, int], None]) -> Mapping[str, float]:
        for done in range(1, len(packs) + 1):
            report(done, len(packs))
        loss = START_LOSS / 2**self.version
        return {"actor/loss": loss, "lm/loss": loss, "lm/perplexity": 2.0}
