"""Findings: what the diagnosis of a job said, each from the step where it began to hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Index, delete, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.schema.finding import Evidence, Finding, Severity
from strop.schema.finding import Text as InBoth
from strop.store.columns import ROW_ID, PackedJson, UtcTime, Written
from strop.store.tables import Base, of_job


class FindingRow(Base):
    __tablename__ = "findings"
    __table_args__ = (Index(None, "job_id", "rule", "first_step", unique=True),)

    id: Mapped[int] = mapped_column(ROW_ID, primary_key=True)
    job_id: Mapped[str] = mapped_column(Written, of_job())
    rule: Mapped[str] = mapped_column(Written)
    severity: Mapped[str] = mapped_column(Written)
    first_step: Mapped[int]
    last_step: Mapped[int]
    ended_step: Mapped[int | None]
    summary: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    evidence: Mapped[dict[str, Any]] = mapped_column(PackedJson)
    created_at: Mapped[datetime] = mapped_column(UtcTime)
    updated_at: Mapped[datetime] = mapped_column(UtcTime)

    def finding(self) -> Finding:
        return Finding(
            job_id=self.job_id,
            rule=self.rule,
            severity=Severity(self.severity),
            first_step=self.first_step,
            last_step=self.last_step,
            ended_step=self.ended_step,
            summary=InBoth.model_validate(self.summary),
            evidence=Evidence.model_validate(self.evidence),
            created_at=self.created_at,
            updated_at=self.updated_at,
        )


def record_finding(session: Session, finding: Finding) -> None:
    """Write it; one of the same rule that began at the same step is what it was, further on."""
    query = select(FindingRow).where(
        FindingRow.job_id == finding.job_id,
        FindingRow.rule == finding.rule,
        FindingRow.first_step == finding.first_step,
    )
    values = {**finding.model_dump(), "severity": finding.severity.value}
    row = session.scalars(query).first()
    if row is None:
        session.add(FindingRow(**values))
    else:
        for name in set(values) - {"created_at"}:
            setattr(row, name, values[name])
    session.flush()


def replace_findings(session: Session, job_id: str, findings: Sequence[Finding]) -> None:
    """Replace a job's findings by these, when its diagnosis is repeated."""
    session.execute(delete(FindingRow).where(FindingRow.job_id == job_id))
    for finding in findings:
        record_finding(session, finding)


def list_findings(session: Session, job_id: str, *, open_only: bool = False) -> list[Finding]:
    """By the step at which they began. `open_only`: those that hold still."""
    query = select(FindingRow).where(FindingRow.job_id == job_id)
    if open_only:
        query = query.where(FindingRow.ended_step.is_(None))
    rows = session.scalars(query.order_by(FindingRow.first_step, FindingRow.id))
    return [row.finding() for row in rows]
