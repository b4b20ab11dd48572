"""Checkpoints: where the folders are, their step and policy version, whether they were published."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from sqlalchemy import Text, UniqueConstraint, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import MissingError
from strop.schema.job import Checkpoint
from strop.store.columns import UtcTime, Written
from strop.store.tables import Base, of_job


class CheckpointRow(Base):
    __tablename__ = "checkpoints"
    __table_args__ = (UniqueConstraint("job_id", "step"),)

    checkpoint_id: Mapped[str] = mapped_column(Text, primary_key=True)
    job_id: Mapped[str] = mapped_column(Text, of_job())
    step: Mapped[int]
    folder: Mapped[str] = mapped_column(Written)
    policy_version: Mapped[int]
    validation: Mapped[float | None]
    published: Mapped[bool]
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            checkpoint_id=self.checkpoint_id,
            job_id=self.job_id,
            step=self.step,
            folder=Path(self.folder),
            policy_version=self.policy_version,
            validation=self.validation,
            published=self.published,
            created_at=self.created_at,
        )


def checkpoint_id(job_id: str, step: int) -> str:
    """One checkpoint a step, so the name says both.

    >>> checkpoint_id("job-1", 40)
    'job-1-step-40'
    """
    return f"{job_id}-step-{step}"


def record_checkpoint(session: Session, checkpoint: Checkpoint) -> None:
    """Write it, or bring an earlier record of the same id up to date, as when it is published later."""
    session.merge(CheckpointRow(**{**checkpoint.model_dump(), "folder": str(checkpoint.folder)}))


def mark_published(session: Session, checkpoint_id: str) -> None:
    """Note that the checkpoint has become a model; without effect where it has no record yet."""
    row = session.get(CheckpointRow, checkpoint_id)
    if row is not None:
        row.published = True


def get_checkpoint(session: Session, checkpoint_id: str) -> Checkpoint:
    """Raises:
    MissingError: no such checkpoint.
    """
    row = session.get(CheckpointRow, checkpoint_id)
    if row is None:
        raise MissingError(f"no checkpoint {checkpoint_id!r} in this database", fix="give its folder instead")
    return row.checkpoint()


def list_checkpoints(session: Session, job_id: str) -> list[Checkpoint]:
    """In order of steps."""
    query = select(CheckpointRow).where(CheckpointRow.job_id == job_id).order_by(CheckpointRow.step)
    return [row.checkpoint() for row in session.scalars(query)]
