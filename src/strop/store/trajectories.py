"""Trajectories and their turns, token for token as they were sampled.

Turns are a table of their own: a list of trajectories is read without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import ForeignKey, Index, delete, insert, select, text
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import MissingError
from strop.locales import msg
from strop.schema.function import TaskStatus
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import FailedAttempt, Group, Trajectory, Turn
from strop.store.columns import ROW_ID, PackedFloats, PackedInts, PackedJson, Written
from strop.store.tables import Base, Page, of_job, page_of


class TrajectoryRow(Base):
    __tablename__ = "trajectories"
    __table_args__ = (
        Index(None, "job_id", "rollout_id", "step", "split", unique=True),
        Index(None, "job_id", "step", "split", "id"),
        Index(None, "job_id", "sample_id", "id"),
        # Narrow ones for lists: rows are wide, and filters need only what stands in these.
        Index("ix_trajectories_filters", "job_id", "split", "id", "status", "reward", "step", "sample_id"),
        Index("ix_trajectories_samples", "job_id", "split", "sample_id", "step", "status", "reward"),
    )

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(Written, of_job())
    step: Mapped[int]
    split: Mapped[str] = mapped_column(Written)
    rollout_id: Mapped[str] = mapped_column(Written)
    attempt_id: Mapped[str] = mapped_column(Written)
    group_id: Mapped[str] = mapped_column(Written)
    sample_id: Mapped[str] = mapped_column(Written)
    attempts: Mapped[int]
    status: Mapped[str] = mapped_column(Written)
    messages: Mapped[list[dict[str, Any]]] = mapped_column(PackedJson)
    ground_truth: Mapped[Any] = mapped_column(PackedJson)
    rollout_extra: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    rollout_metrics: Mapped[dict[str, float]] = mapped_column(PackedJson)
    preset_reward: Mapped[float | None]
    reward: Mapped[float | None]
    overlong_penalty: Mapped[float] = mapped_column(server_default=text("0"))
    reward_parts: Mapped[dict[str, float]] = mapped_column(PackedJson)
    reward_metrics: Mapped[dict[str, dict[str, float]]] = mapped_column(PackedJson)
    error: Mapped[str | None] = mapped_column(Written)
    error_code: Mapped[str | None] = mapped_column(Written)
    failed_attempts: Mapped[list[dict[str, str]] | None] = mapped_column(PackedJson)
    rollout_s: Mapped[float]
    reward_s: Mapped[float]
    num_turns: Mapped[int]
    num_sampled_tokens: Mapped[int]

    def trajectory(self, turns: tuple[Turn, ...] = ()) -> Trajectory:
        return Trajectory(
            rollout_id=self.rollout_id,
            attempt_id=self.attempt_id,
            group_id=self.group_id,
            sample_id=self.sample_id,
            attempts=self.attempts,
            status=TaskStatus(self.status),
            turns=turns,
            messages=tuple(self.messages),
            rollout_extra=self.rollout_extra,
            rollout_metrics=self.rollout_metrics,
            preset_reward=self.preset_reward,
            reward=self.reward,
            overlong_penalty=self.overlong_penalty,
            reward_parts=self.reward_parts,
            reward_metrics=self.reward_metrics,
            error=self.error,
            error_code=self.error_code,
            failed_attempts=tuple(FailedAttempt(**one) for one in self.failed_attempts or ()),
            rollout_s=self.rollout_s,
            reward_s=self.reward_s,
        )


class TurnRow(Base):
    __tablename__ = "turns"

    trajectory_id: Mapped[int] = mapped_column(
        ROW_ID, ForeignKey("trajectories.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    turn_index: Mapped[int]
    prompt_ids: Mapped[tuple[int, ...]] = mapped_column(PackedInts)
    completion_ids: Mapped[tuple[int, ...]] = mapped_column(PackedInts)
    behaviour_logprobs: Mapped[tuple[float, ...]] = mapped_column(PackedFloats)
    policy_versions: Mapped[tuple[int, ...]] = mapped_column(PackedInts)
    temperature: Mapped[float]
    finish_reason: Mapped[str] = mapped_column(Written)
    messages: Mapped[list[dict[str, Any]]] = mapped_column(PackedJson)
    response: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    latency_s: Mapped[float]

    def turn(self) -> Turn:
        return Turn(
            index=self.turn_index,
            prompt_ids=self.prompt_ids,
            completion_ids=self.completion_ids,
            behaviour_logprobs=self.behaviour_logprobs,
            policy_versions=self.policy_versions,
            temperature=self.temperature,
            finish_reason=FinishReason(self.finish_reason),
            messages=tuple(self.messages),
            response=self.response,
            latency_s=self.latency_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A trajectory with where it stands in its job. In lists `trajectory.turns` is empty, the counts hold."""

    step: int
    split: str
    ground_truth: Any
    num_turns: int
    num_sampled_tokens: int
    trajectory: Trajectory


def record_trajectories(
    session: Session, job_id: str, step: int, groups: Sequence[Group], *, split: str
) -> None:
    """Write whole groups. A rollout already recorded for that step and split is replaced, turns and all."""
    pairs = [(trajectory, group) for group in groups for trajectory in group.trajectories]
    if not pairs:
        return
    same = (TrajectoryRow.job_id == job_id) & (TrajectoryRow.step == step) & (TrajectoryRow.split == split)
    ids = [trajectory.rollout_id for trajectory, _ in pairs]
    connection = session.connection()
    connection.execute(delete(TrajectoryRow).where(same, TrajectoryRow.rollout_id.in_(ids)))
    rows = [_row(job_id, step, split, trajectory, group.sample.ground_truth) for trajectory, group in pairs]
    keys = connection.scalars(
        insert(TrajectoryRow).returning(TrajectoryRow.id, sort_by_parameter_order=True), rows
    ).all()
    turns = [
        _turn(key, position, turn)
        for key, (trajectory, _) in zip(keys, pairs, strict=True)
        for position, turn in enumerate(trajectory.turns)
    ]
    if turns:
        connection.execute(insert(TurnRow), turns)


def _row(job_id: str, step: int, split: str, trajectory: Trajectory, ground_truth: Any) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "step": step,
        "split": split,
        "ground_truth": ground_truth,
        "num_turns": len(trajectory.turns),
        "num_sampled_tokens": trajectory.num_sampled_tokens,
        **{name: getattr(trajectory, name) for name in _PLAIN},
        "status": trajectory.status.value,
        "failed_attempts": [asdict(one) for one in trajectory.failed_attempts],
    }


_CONVERTED = ("turns", "status", "failed_attempts")
_NOT_KEPT = ("reward_calls",)

_PLAIN = tuple(name for name in Trajectory.__dataclass_fields__ if name not in (*_CONVERTED, *_NOT_KEPT))
"""Fields of a trajectory that are columns under the same name."""


def _turn(key: int, position: int, turn: Turn) -> dict[str, Any]:
    return {
        "trajectory_id": key,
        "position": position,
        "turn_index": turn.index,
        "prompt_ids": turn.prompt_ids,
        "completion_ids": turn.completion_ids,
        "behaviour_logprobs": turn.behaviour_logprobs,
        "policy_versions": turn.policy_versions,
        "temperature": turn.temperature,
        "finish_reason": turn.finish_reason.value,
        "messages": turn.messages,
        "response": turn.response,
        "latency_s": turn.latency_s,
    }


def list_trajectories(
    session: Session,
    job_id: str,
    *,
    step: int | None = None,
    split: str | None = None,
    sample_id: str | None = None,
    status: TaskStatus | None = None,
    min_reward: float | None = None,
    max_reward: float | None = None,
    after: str | None = None,
    limit: int = 50,
) -> Page[Recorded]:
    """In the order of recording, without turns. Both reward bounds are inclusive; with either, unscored
    trajectories are left out."""
    query = (
        select(TrajectoryRow)
        .where(TrajectoryRow.job_id == job_id)
        .order_by(TrajectoryRow.id)
        .limit(limit + 1)
    )
    equal = {"step": step, "split": split, "sample_id": sample_id, "status": status.value if status else None}
    for name, value in equal.items():
        if value is not None:
            query = query.where(getattr(TrajectoryRow, name) == value)
    if min_reward is not None:
        query = query.where(TrajectoryRow.reward >= min_reward)
    if max_reward is not None:
        query = query.where(TrajectoryRow.reward <= max_reward)
    if after is not None:
        query = query.where(TrajectoryRow.id > int(after))
    rows = session.scalars(query).all()
    return page_of(rows, limit, item=recorded_row, cursor=lambda row: row.id, after=after)


def get_trajectory(session: Session, job_id: str, rollout_id: str, *, step: int | None = None) -> Recorded:
    """One trajectory with its turns; of several steps with this rollout id, the latest or `step`'s.

    Raises:
        MissingError: the job has no such trajectory.
    """
    query = (
        select(TrajectoryRow)
        .where(TrajectoryRow.job_id == job_id, TrajectoryRow.rollout_id == rollout_id)
        .order_by(TrajectoryRow.step.desc(), TrajectoryRow.id.desc())
        .limit(1)
    )
    if step is not None:
        query = query.where(TrajectoryRow.step == step)
    row = session.scalars(query).first()
    if row is None:
        if step is not None:
            raise MissingError(
                msg(
                    "job {job_id!r} has no trajectory {rollout_id!r} at step {step}",
                    job_id=job_id,
                    rollout_id=rollout_id,
                    step=step,
                )
            )
        raise MissingError(
            msg("job {job_id!r} has no trajectory {rollout_id!r}", job_id=job_id, rollout_id=rollout_id)
        )
    turns = session.scalars(select(TurnRow).where(TurnRow.trajectory_id == row.id).order_by(TurnRow.position))
    return recorded_row(row, tuple(turn.turn() for turn in turns))


def recorded_row(row: TrajectoryRow, turns: tuple[Turn, ...] = ()) -> Recorded:
    """A row as it was recorded, with the turns that were read for it."""
    return Recorded(
        step=row.step,
        split=row.split,
        ground_truth=row.ground_truth,
        num_turns=row.num_turns,
        num_sampled_tokens=row.num_sampled_tokens,
        trajectory=row.trajectory(turns),
    )
