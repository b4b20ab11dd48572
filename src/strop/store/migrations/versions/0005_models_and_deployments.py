"""Model names and deployments."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.create_table(
        "models",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=True),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("lineage", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_models")),
    )
    op.create_index(op.f("ix_models_workspace_id"), "models", ["workspace_id"], unique=False)
    op.create_index(op.f("ix_models_job_id"), "models", ["job_id"], unique=False)
    op.create_table(
        "deployments",
        sa.Column("deployed_model", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("base_model", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("rpm_limit", sa.Integer(), nullable=True),
        sa.Column("tpm_limit", sa.Integer(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("creator", sa.Text(), nullable=False),
        sa.Column("modifier", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("modified_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("deployed_model", name=op.f("pk_deployments")),
    )
    op.create_index(
        op.f("ix_deployments_workspace_id_created_at_deployed_model"),
        "deployments",
        ["workspace_id", "created_at", "deployed_model"],
        unique=False,
    )
    op.create_index(op.f("ix_deployments_model_name"), "deployments", ["model_name"], unique=False)
