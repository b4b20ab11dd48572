"""Deployments: one row each, gone when it is deleted; its status moves only along `ALLOWED_MOVES`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Index, func, select, update
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import ConflictError, MissingError
from strop.locales import msg
from strop.schema.deployment import ALLOWED_MOVES, Deployment, DeploymentStatus
from strop.store.columns import UtcTime, Written
from strop.store.tables import Base


class DeploymentRow(Base):
    __tablename__ = "deployments"
    __table_args__ = (Index(None, "workspace_id", "created_at", "deployed_model"), Index(None, "model_name"))

    deployed_model: Mapped[str] = mapped_column(Written, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Written)
    model_name: Mapped[str] = mapped_column(Written)
    base_model: Mapped[str] = mapped_column(Written)
    source: Mapped[str] = mapped_column(Written)
    plan: Mapped[str] = mapped_column(Written)
    capacity: Mapped[int]
    rpm_limit: Mapped[int | None]
    tpm_limit: Mapped[int | None]
    status: Mapped[str] = mapped_column(Written)
    error: Mapped[str | None] = mapped_column(Written)
    creator: Mapped[str] = mapped_column(Written)
    modifier: Mapped[str] = mapped_column(Written)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    modified_at: Mapped[datetime] = mapped_column(UtcTime)

    def deployment(self) -> Deployment:
        values = {name: getattr(self, name) for name in Deployment.model_fields}
        return Deployment.model_validate(values)


def create_deployment(session: Session, deployment: Deployment) -> None:
    """Raises:
    ConflictError: the name is taken, in whatever workspace.
    """
    if session.get(DeploymentRow, deployment.deployed_model) is not None:
        raise ConflictError(
            msg("there is a deployment {deployed_model!r} already", deployed_model=deployment.deployed_model),
            fix=msg("choose another suffix"),
        )
    session.add(DeploymentRow(**{**deployment.model_dump(), "status": deployment.status.value}))
    session.flush()


def get_deployment(session: Session, deployed_model: str, *, workspace_id: str | None = None) -> Deployment:
    """Raises:
    MissingError: no such deployment, or not in that workspace.
    """
    return _row(session, deployed_model, workspace_id).deployment()


def list_deployments(session: Session) -> list[Deployment]:
    """Those of every workspace, oldest first: what a server has to keep running."""
    query = select(DeploymentRow).order_by(DeploymentRow.created_at, DeploymentRow.deployed_model)
    return [row.deployment() for row in session.scalars(query)]


def numbered_deployments(
    session: Session, *, workspace_id: str, page_no: int, page_size: int
) -> tuple[list[Deployment], int]:
    """Page `page_no` (from 1), newest first, and how many there are."""
    query = select(DeploymentRow).where(DeploymentRow.workspace_id == workspace_id)
    total = session.scalar(select(func.count()).select_from(query.subquery())) or 0
    ordered = query.order_by(DeploymentRow.created_at.desc(), DeploymentRow.deployed_model)
    rows = session.scalars(ordered.offset((page_no - 1) * page_size).limit(page_size))
    return [row.deployment() for row in rows], total


def change_deployment(
    session: Session, deployed_model: str, *, workspace_id: str, modifier: str, **changes: Any
) -> Deployment:
    """Set capacity or limits.

    Raises:
        MissingError: no such deployment in that workspace. ConflictError: it is being deleted.
    """
    row = _row(session, deployed_model, workspace_id)
    if row.status == DeploymentStatus.DELETING:
        raise ConflictError(
            msg("deployment {deployed_model!r} is being deleted", deployed_model=deployed_model)
        )
    for name, value in changes.items():
        setattr(row, name, value)
    row.modifier, row.modified_at = modifier, datetime.now(UTC)
    session.flush()
    return row.deployment()


def move_deployment(
    session: Session, deployed_model: str, status: DeploymentStatus, *, error: str | None = None
) -> Deployment:
    """Move it to `status` and set its `error`; staying at its status is allowed.

    Raises:
        MissingError: no such deployment. ConflictError: `ALLOWED_MOVES` has no way from where it is.
    Concurrency:
        One statement checks and moves.
    """
    sources = [
        source.value for source, targets in ALLOWED_MOVES.items() if status in targets or source == status
    ]
    move = (
        update(DeploymentRow)
        .where(DeploymentRow.deployed_model == deployed_model, DeploymentRow.status.in_(sources))
        .values({"status": status.value, "error": error})
        .returning(DeploymentRow.deployed_model)
    )
    moved = session.execute(move, execution_options={"synchronize_session": False}).first()
    row = session.get(DeploymentRow, deployed_model, populate_existing=True)
    if row is None:
        raise _missing(deployed_model)
    if moved is None:
        raise ConflictError(
            msg(
                "deployment {deployed_model!r} is {status} and cannot become {value}",
                deployed_model=deployed_model,
                status=row.status,
                value=status.value,
            )
        )
    return row.deployment()


def forget_deployment(session: Session, deployed_model: str) -> None:
    """Remove the row; harmless when it does not exist."""
    row = session.get(DeploymentRow, deployed_model)
    if row is not None:
        session.delete(row)


def served_from(session: Session, model_name: str, *, workspace_id: str | None = None) -> list[str]:
    """The deployments of a model; with None those of every workspace: it must not be removed under them."""
    query = select(DeploymentRow.deployed_model).where(DeploymentRow.model_name == model_name)
    if workspace_id is not None:
        query = query.where(DeploymentRow.workspace_id == workspace_id)
    return list(session.scalars(query.order_by(DeploymentRow.deployed_model)))


def _row(session: Session, deployed_model: str, workspace_id: str | None) -> DeploymentRow:
    row = session.get(DeploymentRow, deployed_model)
    if row is None or workspace_id not in (None, row.workspace_id):
        raise _missing(deployed_model)
    return row


def _missing(deployed_model: str) -> MissingError:
    return MissingError(
        msg("no deployment {deployed_model!r}", deployed_model=deployed_model),
        fix=msg("list the deployments and take a name from there"),
    )
