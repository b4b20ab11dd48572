"""Checkpoints know when they were removed and which is the best; trajectories keep what went wrong before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("checkpoints", sa.Column("best", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("checkpoints", sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column(
        "trajectories",
        sa.Column("overlong_penalty", sa.Double(), server_default=sa.text("0"), nullable=False),
    )
    op.add_column("trajectories", sa.Column("failed_attempts", sa.LargeBinary(), nullable=True))
