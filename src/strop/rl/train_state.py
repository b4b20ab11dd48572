"""Where a run is: all that it needs, beside the learner, to go on exactly. Saved in every checkpoint.

Used by `rl.loop` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from strop.config.job import HyperParameters, JobConfig
from strop.data.dataset import Dataset, Draw
from strop.errors import CheckpointError
from strop.locales import msg
from strop.rl.fingerprint import MAY_CHANGE, RunFingerprint, changes, run_fingerprint
from strop.rl.repeat_failures import lost_in_a_row
from strop.schema.batch import Pack
from strop.schema.trajectory import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainState:
    """The last completed step and where its successor draws from.

    `fingerprint` is what decides on the steps: with something else, going on would be another run.
    `epoch_ended`: that step drew the last rows of an epoch. `validations` holds (step, mean@1) in order.
    Counts of tokens and of groups are of the whole run so far. `skipped_steps` counts those in a row up to
    this one without any finite gradient; `rollbacks`, returns to a checkpoint. `lost` are samples dropped in
    their last draws, with how many in a row. `idle` counts the steps in which no advantage was other than 0,
    whatever else pulled, `skipped` those whose every update was left out for want of a finite gradient.
    """

    fingerprint: RunFingerprint
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
    idle: int = 0
    skipped: int = 0

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

    def has_reached(self, hyper: HyperParameters, *, lower_is_better: bool = False) -> bool:
        """Whether validation is as good as `early_stopping_target` asks, this step's and those before it. Of
        weights that no step has moved yet it is the one before the first step again, and counts as little."""
        target = hyper.early_stopping_target
        if self.idle + self.skipped >= self.step:
            return False
        after_steps = [(step, value) for step, value in self.validations if step > 0]
        last = after_steps[-hyper.early_stopping_count :]
        if target is None or len(last) < hyper.early_stopping_count or last[-1][0] != self.step:
            return False
        values = [value for _, value in last if value is not None]
        reached = [value <= target if lower_is_better else value >= target for value in values]
        return len(values) == len(last) and all(reached)

    def after_step(
        self,
        draw: Draw,
        groups: tuple[Group, ...],
        taught: Sequence[Pack],
        *,
        idle: bool,
        skipped_steps: int,
    ) -> TrainState:
        """The state once the step whose last draw was `draw` is through; `taught` carried a loss, where no
        advantage took part if it was `idle`."""
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
            skipped=self.skipped + (skipped_steps > 0),
            idle=self.idle + (idle and not skipped_steps),
            lost=tuple(lost_in_a_row(dict(self.lost), groups).items()),
        )

    def after_validation(self, mean_at_1: float | None, groups: tuple[Group, ...]) -> TrainState:
        sampled = sum(one.num_sampled_tokens for group in groups for one in group.trajectories)
        return replace(
            self,
            validations=(*self.validations, (self.step, mean_at_1)),
            sampled_tokens=self.sampled_tokens + sampled,
        )

    def as_json(self) -> dict[str, Any]:
        """As checkpoints hold it."""
        fields = asdict(self)
        return {"made_from": fields.pop("fingerprint"), **fields}


def start_state(
    config: JobConfig, training: Dataset, validation: Dataset | None, code: Mapping[str, str]
) -> TrainState:
    """Before the first step; `code` is the hash of each function's code, by its label."""
    return TrainState(
        fingerprint=run_fingerprint(
            config, _as_json(training), None if validation is None else _as_json(validation), code
        )
    )


def saved_state(saved: Mapping[str, Any], start: TrainState, *, accept_changes: bool = False) -> TrainState:
    """Read a state back, if it belongs to a run made from the same as `start`.

    With `accept_changes` it may be judged and validated by others.

    Raises:
        CheckpointError: it belongs to another run, and what differs.
    """
    try:
        found = changes(saved["made_from"], start.fingerprint)
        state = _read(saved, start)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        text = f"the position in the checkpoint cannot be read: {type(error).__name__}: {error}"
        raise CheckpointError(text, fix=msg("resume from another checkpoint of the run")) from error
    if found is not None and not (accept_changes and found.acceptable):
        raise CheckpointError(
            "the checkpoint was made by another job, and its run cannot go on as this one\n    "
            + "\n    ".join(found.lines),
            fix=f"restore it (free to change: {', '.join(sorted(MAY_CHANGE))}), or start a new job with the "
            "checkpoint's folder as its model"
            + ("; --accept-changes goes on as it is now" if found.acceptable else ""),
        )
    return state


def _read(saved: Mapping[str, Any], start: TrainState) -> TrainState:
    return TrainState(
        fingerprint=start.fingerprint,
        step=int(saved["step"]),
        epoch=int(saved["epoch"]),
        index=int(saved["index"]),
        sampled_tokens=int(saved["sampled_tokens"]),
        trained_tokens=int(saved["trained_tokens"]),
        sampled_groups=int(saved["sampled_groups"]),
        epoch_ended=bool(saved["epoch_ended"]),
        validations=tuple((step, value) for step, value in saved["validations"]),
        skipped_steps=int(saved["skipped_steps"]),
        rollbacks=int(saved["rollbacks"]),
        lost=tuple((sample_id, count) for sample_id, count in saved["lost"]),
        idle=int(saved["idle"]),
        skipped=int(saved["skipped"]),
    )


def _as_json(dataset: Dataset) -> list[list[Any]]:
    return [
        [one.sample_id, one.messages, one.tools, one.ground_truth, one.rollout_extra]
        for one in dataset.samples
    ]
