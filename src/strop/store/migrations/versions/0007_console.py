"""What the console needs: where jobs have been, sessions of browsers, narrow indices for lists."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "job_moves",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_job_moves_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_moves")),
    )
    op.create_index(op.f("ix_job_moves_job_id_id"), "job_moves", ["job_id", "id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("expires_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["key_id"], ["api_keys.key_id"], name=op.f("fk_sessions_key_id_api_keys"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_sessions")),
    )
    op.create_index(
        "ix_trajectories_filters",
        "trajectories",
        ["job_id", "split", "id", "status", "reward", "step", "sample_id"],
        unique=False,
    )
    op.create_index(
        "ix_trajectories_samples",
        "trajectories",
        ["job_id", "split", "sample_id", "step", "status", "reward"],
        unique=False,
    )
