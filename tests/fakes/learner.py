"""A learner whose weights are one number, and checkpoints of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from strop.schema.batch import Batch, Score
from strop.schema.weights import WeightsRef


class FakeLearner:
    """Every update folds the batch's rollout ids and advantages into `weights`, so any difference shows."""

    def __init__(self) -> None:
        self.weights = 0.0
        self.version = 0
        self.batches: list[Batch] = []

    def update(self, batch: Batch) -> Mapping[str, float]:
        self.batches.append(batch)
        for mini in batch.mini_batches:
            for pack in mini.packs:
                for sequence in pack.sequences:
                    code = sum(sequence.rollout_id.encode()) + sum(sequence.token_ids)
                    self.weights = 0.5 * self.weights + sequence.advantage * code
        self.version += len(batch.mini_batches)
        return {"actor/loss": self.weights}

    def score(self, batch: Batch) -> list[Score]:
        """Every token is half a nat likelier than under the reference."""
        sequences = [one for mini in batch.mini_batches for pack in mini.packs for one in pack.sequences]
        return [
            Score(
                old_logprobs=(-1.0,) * one.num_loss_tokens, reference_logprobs=(-1.5,) * one.num_loss_tokens
            )
            for one in sequences
        ]

    @property
    def policy_version(self) -> int:
        return self.version

    def export(self) -> WeightsRef:
        return WeightsRef(tensors={"weights": self.weights})

    def learned(self) -> bool:
        return self.version > 0

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        state = {"weights": self.weights, "version": self.version}
        (folder / "learner.json").write_text(json.dumps(state))

    def load(self, folder: Path) -> None:
        state = json.loads((folder / "learner.json").read_text())
        self.weights, self.version = state["weights"], state["version"]


class FakeCheckpoints:
    """Writes plainly; `refuse` is raised instead of writing while it is set."""

    def __init__(self, learner: FakeLearner) -> None:
        self.learner = learner
        self.refuse: Exception | None = None
        self.written: list[int] = []

    def write(self, folder: Path, *, step: int, policy_version: int, position: dict[str, Any]) -> Path:
        if self.refuse is not None:
            raise self.refuse
        shutil.rmtree(folder, ignore_errors=True)
        self.learner.save(folder)
        (folder / "position.json").write_text(json.dumps(position))
        self.written.append(step)
        return folder

    def load(self, folder: Path, belongs: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
        position = json.loads((folder / "position.json").read_text())
        belongs(position)
        self.learner.load(folder)
        return position
