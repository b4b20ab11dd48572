"""A critic whose value is one number, the same everywhere; it moves half-way to the mean return."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from strop.schema.batch import Batch, Sequence


def sequences_in(batch: Batch) -> list[Sequence]:
    return [sequence for mini in batch.mini_batches for pack in mini.packs for sequence in pack.sequences]


class FakeCritic:
    def __init__(self) -> None:
        self.value = 0.25
        self.batches: list[Batch] = []
        self.skipped = 0.0

    def values(self, batch: Batch) -> list[list[float]]:
        return [[self.value] * sequence.num_loss_tokens for sequence in sequences_in(batch)]

    def update(self, batch: Batch) -> Mapping[str, float]:
        self.batches.append(batch)
        returns = [value for sequence in sequences_in(batch) for value in sequence.returns]
        self.value = 0.5 * (self.value + sum(returns) / len(returns))
        return {"critic/vf_loss": self.value, "critic/skipped_updates": self.skipped}

    def save(self, folder: Path) -> None:
        (folder / "critic.json").write_text(json.dumps(self.value))

    def load(self, folder: Path) -> None:
        self.value = json.loads((folder / "critic.json").read_text())
