"""Where a run is: all that it needs, beside the learner, to go on exactly. Saved in every checkpoint.

Used by `pipeline.loop` alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from strop.errors import CheckpointError
from strop.pipeline.dataset import Dataset, Draw
from strop.pipeline.dropouts import lost_in_a_row
from strop.schema.batch import Pack
from strop.schema.config import HyperParameters
from strop.schema.trajectory import Group

MAY_CHANGE = {
    "n_epochs",
    "max_steps",
    "eval_steps",
    "save_steps",
    "save_strategy",
    "save_total_limit",
    "max_attempts",
    "max_failure_rate",
}
"""Hyper-parameters that say how long, how often and how patiently, not what is computed in a step.

`n_epochs` and `max_steps` do move a linear or cosine schedule; a run is often prolonged on purpose.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The last completed step and where its successor draws from.

    `draws_from` identifies rows and hyper-parameters: with others, going on would be another run.
    `epoch_ended`: that step drew the last rows of an epoch. `validations` holds (step, mean@1) in order.
    Counts of tokens and of groups are of the whole run so far. `skipped_steps` counts those in a row up to
    this one without any finite gradient; `rollbacks`, returns to a checkpoint. `lost` are samples dropped in
    their last draws, with how many in a row.
    """

    draws_from: str
    step: int = 0
    epoch: int = 0
    index: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    sampled_groups: int = 0
    epoch_ended: bool = False
    validations: tuple[tuple[int, float | None], ...] = ()
    skipped_steps: int = 0
    rollbacks: int = 0
    lost: tuple[tuple[str, int], ...] = ()

    @property
    def retake(self) -> str:
        """Ends the ids of rollouts, and so their seeds, that go over steps again after a rollback: the very
        same samples would only lead where they led before."""
        return f".{self.rollbacks}" if self.rollbacks else ""

    @property
    def validated(self) -> bool:
        """Whether the policy of this step has been validated."""
        return any(step == self.step for step, _ in self.validations)

    @property
    def validation(self) -> float | None:
        return dict(self.validations).get(self.step)

    def after_step(
        self, draw: Draw, groups: tuple[Group, ...], taught: Sequence[Pack], *, skipped_steps: int
    ) -> Position:
        """The position once the step whose last draw was `draw` is through; `taught` carried a loss."""
        sampled = sum(one.num_sampled_tokens for group in groups for one in group.trajectories)
        trained = sum(sequence.num_loss_tokens for pack in taught for sequence in pack.sequences)
        return replace(
            self,
            step=self.step + 1,
            epoch=draw.next_epoch,
            index=draw.next_index,
            sampled_tokens=self.sampled_tokens + sampled,
            trained_tokens=self.trained_tokens + trained,
            sampled_groups=self.sampled_groups + len(groups),
            epoch_ended=draw.next_epoch > self.epoch,
            skipped_steps=skipped_steps,
            lost=tuple(lost_in_a_row(dict(self.lost), groups).items()),
        )

    def after_validation(self, mean_at_1: float | None, groups: tuple[Group, ...]) -> Position:
        sampled = sum(one.num_sampled_tokens for group in groups for one in group.trajectories)
        return replace(
            self,
            validations=(*self.validations, (self.step, mean_at_1)),
            sampled_tokens=self.sampled_tokens + sampled,
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def start_position(training: Dataset, hyper: HyperParameters) -> Position:
    """Before the first step."""
    fixed = hyper.model_dump(mode="json", exclude=MAY_CHANGE)
    rows = [
        (one.sample_id, one.messages, one.tools, one.ground_truth, one.rollout_extra)
        for one in training.samples
    ]
    named = json.dumps([fixed, rows], sort_keys=True, default=str)
    return Position(draws_from=hashlib.sha256(named.encode()).hexdigest()[:16])


def saved_position(saved: dict[str, Any], start: Position) -> Position:
    """Read a position back, if it belongs to the same rows and hyper-parameters as `start`.

    Raises:
        CheckpointError: it belongs to others.
    """
    position = Position(
        draws_from=saved["draws_from"],
        step=saved["step"],
        epoch=saved["epoch"],
        index=saved["index"],
        sampled_tokens=saved["sampled_tokens"],
        trained_tokens=saved["trained_tokens"],
        sampled_groups=saved.get("sampled_groups", 0),
        epoch_ended=saved["epoch_ended"],
        validations=tuple((step, value) for step, value in saved["validations"]),
        skipped_steps=saved["skipped_steps"],
        rollbacks=saved["rollbacks"],
        lost=tuple((sample_id, count) for sample_id, count in saved.get("lost", ())),
    )
    if position.draws_from != start.draws_from:
        raise CheckpointError(
            "the checkpoint was made with other training rows or hyper-parameters; its run cannot go on",
            fix=f"restore them (free to change: {', '.join(sorted(MAY_CHANGE))}), or start a new job with "
            "the checkpoint's folder as its model",
        )
    return position
