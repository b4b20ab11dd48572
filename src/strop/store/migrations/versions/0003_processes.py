"""Which process trains a job, and which job it resumes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # Plain columns: to make the table anew would drop it, and with it what belongs to its rows.
    for column in (
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("process_started", sa.Text(), nullable=True),
        sa.Column("resumes", sa.Text(), nullable=True),
    ):
        op.add_column("jobs", column)
