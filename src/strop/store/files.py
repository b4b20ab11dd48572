"""Uploaded files: their names and hashes; the contents lie in the blob store."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Index, func, select
from sqlalchemy.orm import Mapped, Session, mapped_column

from strop.errors import MissingError
from strop.locales import msg
from strop.schema.file import StoredFile
from strop.store.columns import UtcTime, Written
from strop.store.tables import Base


class FileRow(Base):
    __tablename__ = "files"
    __table_args__ = (Index(None, "workspace_id", "created_at", "file_id"), Index(None, "sha256"))

    file_id: Mapped[str] = mapped_column(Written, primary_key=True)
    workspace_id: Mapped[str] = mapped_column(Written)
    name: Mapped[str] = mapped_column(Written)
    description: Mapped[str] = mapped_column(Written)
    purpose: Mapped[str] = mapped_column(Written)
    size: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str] = mapped_column(Written)
    md5: Mapped[str] = mapped_column(Written)
    created_at: Mapped[datetime] = mapped_column(UtcTime)

    def file(self) -> StoredFile:
        return StoredFile(
            file_id=self.file_id,
            workspace_id=self.workspace_id,
            name=self.name,
            description=self.description,
            purpose=self.purpose,
            size=self.size,
            sha256=self.sha256,
            md5=self.md5,
            created_at=self.created_at,
        )


def record_file(session: Session, file: StoredFile) -> None:
    session.add(FileRow(**file.model_dump()))
    session.flush()


def get_file(session: Session, file_id: str, *, workspace_id: str) -> StoredFile:
    """Raises:
    MissingError: no such file in that workspace.
    """
    row = session.get(FileRow, file_id)
    if row is None or row.workspace_id != workspace_id:
        raise MissingError(
            msg("no file {file_id!r}", file_id=file_id),
            fix=msg("upload it, or list the files and take an id from there"),
        )
    return row.file()


def numbered_files(
    session: Session, *, workspace_id: str, purpose: str | None = None, page_no: int, page_size: int
) -> tuple[list[StoredFile], int]:
    """Page `page_no` (from 1), newest first, and how many files there are."""
    query = select(FileRow).where(FileRow.workspace_id == workspace_id)
    if purpose is not None:
        query = query.where(FileRow.purpose == purpose)
    total = session.scalar(select(func.count()).select_from(query.subquery())) or 0
    ordered = query.order_by(FileRow.created_at.desc(), FileRow.file_id.desc())
    rows = session.scalars(ordered.offset((page_no - 1) * page_size).limit(page_size))
    return [row.file() for row in rows], total


def forget_file(session: Session, file_id: str, *, workspace_id: str) -> StoredFile:
    """Remove the record. Returns it; the caller removes the blob unless `is_held`.

    Raises:
        MissingError: no such file in that workspace.
    """
    file = get_file(session, file_id, workspace_id=workspace_id)
    session.delete(session.get_one(FileRow, file_id))
    session.flush()
    return file


def is_held(session: Session, sha256: str) -> bool:
    """Whether a file still needs the blob."""
    return session.scalar(select(FileRow.file_id).where(FileRow.sha256 == sha256).limit(1)) is not None
