"""Checkpoints: where the folders are, their step and policy version; which is the best, which are gone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import UniqueConstraint, false, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import MissingError
from strop.locales import msg
from strop.schema.job import Checkpoint, Job
from strop.schema.training import best_validated
from strop.store.columns import UtcTime, Written
from strop.store.jobs import workspace_of
from strop.store.tables import Base, of_job


class CheckpointRow(Base):
    __tablename__ = "checkpoints"
    __table_args__ = (UniqueConstraint("job_id", "step"),)

    checkpoint_id: Mapped[str] = mapped_column(Written, primary_key=True)
    job_id: Mapped[str] = mapped_column(Written, of_job())
    step: Mapped[int]
    folder: Mapped[str] = mapped_column(Written)
    policy_version: Mapped[int]
    validation: Mapped[float | None]
    published: Mapped[bool]
    best: Mapped[bool] = mapped_column(server_default=false())
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    removed_at: Mapped[datetime | None] = mapped_column(UtcTime)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            checkpoint_id=self.checkpoint_id,
            job_id=self.job_id,
            step=self.step,
            folder=Path(self.folder),
            policy_version=self.policy_version,
            validation=self.validation,
            published=self.published,
            best=self.best,
            created_at=self.created_at,
            removed_at=self.removed_at,
        )


def best_checkpoint(job: Job, checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    """Of the checkpoints that are still there, the one that validated best: with the lowest loss where the
    job learns from rows, else with the highest reward."""
    there = [one for one in checkpoints if one.removed_at is None]
    return best_validated(there, lower_is_better=job.training_type.lower_is_better)


def checkpoint_id(job_id: str, step: int) -> str:
    """One checkpoint a step, so the name says both.

    >>> checkpoint_id("job-1", 40)
    'job-1-step-40'
    """
    return f"{job_id}-step-{step}"


def record_checkpoint(session: Session, checkpoint: Checkpoint) -> None:
    """Write it, or bring an earlier record of the same id up to date, as when it is published later.

    One that is the best takes the mark from the one that was.
    """
    if checkpoint.best:
        session.execute(
            update(CheckpointRow).where(CheckpointRow.job_id == checkpoint.job_id).values(best=False)
        )
    session.merge(CheckpointRow(**{**checkpoint.model_dump(), "folder": str(checkpoint.folder)}))


def mark_published(session: Session, checkpoint_id: str) -> None:
    """Note that the checkpoint has become a model; without effect where it has no record yet."""
    row = session.get(CheckpointRow, checkpoint_id)
    if row is not None:
        row.published = True


def mark_removed(session: Session, folder: Path) -> None:
    """Note that a folder is gone, of whichever job: a resumed run also removes older checkpoints."""
    gone = (CheckpointRow.folder == str(folder)) & CheckpointRow.removed_at.is_(None)
    session.execute(update(CheckpointRow).where(gone).values(removed_at=datetime.now(UTC)))


def get_checkpoint(session: Session, checkpoint_id: str, *, workspace_id: str | None = None) -> Checkpoint:
    """One checkpoint, as one workspace sees it; with None as the operator does.

    Raises:
        MissingError: no such checkpoint, or its folder was removed.
    """
    row = session.get(CheckpointRow, checkpoint_id)
    if row is None or (workspace_id is not None and workspace_of(session, row.job_id) != workspace_id):
        raise MissingError(
            msg("no checkpoint {checkpoint_id!r}", checkpoint_id=checkpoint_id),
            fix=msg("list the job's checkpoints and take an id from there"),
        )
    if row.removed_at is not None:
        left = [one.checkpoint_id for one in list_checkpoints(session, row.job_id)]
        raise MissingError(
            msg(
                "checkpoint {checkpoint_id!r} was removed at {removed_at} UTC to keep save_total_limit",
                checkpoint_id=checkpoint_id,
                removed_at=f"{row.removed_at:%Y-%m-%d %H:%M}",
            ),
            fix=f"take one that is left: {', '.join(left)}" if left else "none of its job is left",
        )
    return row.checkpoint()


def list_checkpoints(session: Session, job_id: str, *, with_removed: bool = False) -> list[Checkpoint]:
    """Those that are still there, in order of steps."""
    query = select(CheckpointRow).where(CheckpointRow.job_id == job_id).order_by(CheckpointRow.step)
    if not with_removed:
        query = query.where(CheckpointRow.removed_at.is_(None))
    return [row.checkpoint() for row in session.scalars(query)]
