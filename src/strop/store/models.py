"""Model names: the operator's table and what was published, one row a name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import ConflictError, ModelError
from strop.locales import msg
from strop.schema.model import BUNDLED, BUNDLED_NAMES, Lineage, ModelKind, NamedModel
from strop.store.columns import PackedJson, UtcTime, Written
from strop.store.tables import Base


class ModelRow(Base):
    __tablename__ = "models"

    name: Mapped[str] = mapped_column(Written, primary_key=True)
    kind: Mapped[str] = mapped_column(Written)
    source: Mapped[str] = mapped_column(Written)
    workspace_id: Mapped[str | None] = mapped_column(Written, index=True)
    job_id: Mapped[str | None] = mapped_column(Written, index=True)
    lineage: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def model(self) -> NamedModel:
        return NamedModel(
            name=self.name,
            kind=ModelKind(self.kind),
            source=self.source,
            workspace_id=self.workspace_id,
            lineage=Lineage.model_validate(self.lineage) if self.lineage else None,
            created_at=self.created_at,
        )


def record_model(session: Session, model: NamedModel) -> None:
    """Write a new name.

    Raises:
        ConflictError: the name is taken; what it stands for does not change.
    """
    if model.name.lower() in BUNDLED_NAMES or session.get(ModelRow, model.name) is not None:
        raise taken(model.name)
    values: dict[str, Any] = {**model.model_dump(), "kind": model.kind.value, "lineage": {}, "job_id": None}
    if model.lineage is not None:
        values |= {"lineage": model.lineage.model_dump(), "job_id": model.lineage.job_id}
    session.add(ModelRow(**values))
    session.flush()


def register_model(session: Session, name: str, source: str) -> NamedModel:
    """Let the operator's `name` stand for `source`.

    Raises:
        ConflictError: the name is taken.
    """
    model = NamedModel(name=name, kind=ModelKind.REGISTERED, source=source, created_at=datetime.now(UTC))
    record_model(session, model)
    return model


def find_model(session: Session, name: str, *, workspace_id: str | None = None) -> NamedModel | None:
    """The name as one workspace sees it; with None as the operator does."""
    row = session.get(ModelRow, name)
    if row is None or (workspace_id is not None and row.workspace_id not in (None, workspace_id)):
        return None
    return row.model()


def usable_model(session: Session, name: str, *, workspace_id: str) -> NamedModel:
    """What a client of the API may name: a table's entry, a published model, or the bundled one.

    Raises:
        ModelError: 400 that lists what is there.
    """
    if name.lower() in BUNDLED_NAMES:
        return bundled_model()
    found = find_model(session, name, workspace_id=workspace_id)
    if found is None:
        there = ", ".join(sorted([BUNDLED, *(one.name for one in _listed(session, workspace_id))]))
        error = ModelError(
            msg("there is no model {name!r}; there are: {there}", name=name, there=there),
            fix=msg(
                "take one of these, or let the operator add it: strop models add {name} SOURCE", name=name
            ),
        )
        error.http_status = 400
        raise error
    return found


def bundled_model() -> NamedModel:
    """The small model that every installation has, as a name among the others."""
    return NamedModel(
        name=BUNDLED, kind=ModelKind.REGISTERED, source=BUNDLED, created_at=datetime(2024, 11, 1, tzinfo=UTC)
    )


def list_models(session: Session, *, workspace_id: str | None = None) -> list[NamedModel]:
    """By name; with None those of every workspace."""
    return _listed(session, workspace_id)


def models_of_job(session: Session, job_id: str) -> list[NamedModel]:
    """What was published of a job, oldest first."""
    query = select(ModelRow).where(ModelRow.job_id == job_id).order_by(ModelRow.created_at, ModelRow.name)
    return [row.model() for row in session.scalars(query)]


def numbered_models(
    session: Session, *, workspace_id: str, kind: ModelKind | None = None, page_no: int, page_size: int
) -> tuple[list[NamedModel], int]:
    """Page `page_no` (from 1), newest first, and how many there are."""
    query = select(ModelRow).where(
        or_(ModelRow.workspace_id.is_(None), ModelRow.workspace_id == workspace_id)
    )
    if kind is not None:
        query = query.where(ModelRow.kind == kind.value)
    total = session.scalar(select(func.count()).select_from(query.subquery())) or 0
    ordered = query.order_by(ModelRow.created_at.desc(), ModelRow.name)
    return [
        row.model() for row in session.scalars(ordered.offset((page_no - 1) * page_size).limit(page_size))
    ], total


def remove_model(session: Session, name: str) -> NamedModel:
    """Take a name out of the table. Returns what it stood for; a published model's folder is the caller's.

    Raises:
        ModelError: no such name.
    """
    row = session.get(ModelRow, name)
    if row is None:
        raise ModelError(
            msg("there is no model {name!r} in the table", name=name), fix=msg("list them: strop models list")
        )
    model = row.model()
    session.delete(row)
    session.flush()
    return model


def taken(name: str) -> ConflictError:
    return ConflictError(
        msg("the model name {name!r} is taken", name=name),
        fix=msg("choose another name, or remove that one first: strop models remove NAME"),
    )


def _listed(session: Session, workspace_id: str | None) -> list[NamedModel]:
    query = select(ModelRow)
    if workspace_id is not None:
        query = query.where(or_(ModelRow.workspace_id.is_(None), ModelRow.workspace_id == workspace_id))
    return [row.model() for row in sorted(session.scalars(query), key=lambda row: row.name)]
