"""The control plane: workspaces and keys, files, registered functions, submitted jobs."""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

TIME = sa.DateTime(timezone=True)


def upgrade() -> None:
    _access()
    _files()
    _functions()
    _jobs()


def _access() -> None:
    workspaces = op.create_table(
        "workspaces",
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", name=op.f("pk_workspaces")),
        sa.UniqueConstraint("name", name=op.f("uq_workspaces_name")),
    )
    op.bulk_insert(
        workspaces, [{"workspace_id": "default", "name": "default", "created_at": datetime.now(UTC)}]
    )
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("revoked_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.workspace_id"], name=op.f("fk_api_keys_workspace_id_workspaces")
        ),
        sa.PrimaryKeyConstraint("key_id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("digest", name=op.f("uq_api_keys_digest")),
    )


def _files() -> None:
    op.create_table(
        "files",
        sa.Column("file_id", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("md5", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("file_id", name=op.f("pk_files")),
    )
    op.create_index(
        op.f("ix_files_workspace_id_created_at_file_id"),
        "files",
        ["workspace_id", "created_at", "file_id"],
        unique=False,
    )
    op.create_index(op.f("ix_files_sha256"), "files", ["sha256"], unique=False)


def _functions() -> None:
    op.create_table(
        "uploads",
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("unique_key", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "unique_key", name=op.f("pk_uploads")),
    )
    op.create_table(
        "entities",
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("func", sa.Text(), nullable=False),
        sa.Column("unique_key", sa.Text(), nullable=False),
        sa.Column("bundle", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("entity_id", name=op.f("pk_entities")),
        sa.UniqueConstraint(
            "workspace_id", "unique_key", "type", name=op.f("uq_entities_workspace_id_unique_key_type")
        ),
    )
    op.create_table(
        "layers",
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("layer_code", sa.Text(), nullable=False),
        sa.Column("requirements", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("log", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "layer_code", name=op.f("pk_layers")),
    )
    op.create_table(
        "instances",
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("workspace_id", sa.Text(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("runtime", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["entity_id"],
            ["entities.entity_id"],
            name=op.f("fk_instances_entity_id_entities"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("instance_id", name=op.f("pk_instances")),
    )
    op.create_index(
        op.f("ix_instances_workspace_id_created_at"),
        "instances",
        ["workspace_id", "created_at"],
        unique=False,
    )

    op.create_table(
        "instance_logs",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("instance_id", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["instance_id"],
            ["instances.instance_id"],
            name=op.f("fk_instance_logs_instance_id_instances"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_instance_logs")),
    )
    op.create_index(
        op.f("ix_instance_logs_instance_id_id"), "instance_logs", ["instance_id", "id"], unique=False
    )


def _jobs() -> None:
    op.add_column("jobs", sa.Column("workspace_id", sa.Text(), server_default="default", nullable=False))
    op.create_index(
        op.f("ix_jobs_workspace_id_created_at_job_id"),
        "jobs",
        ["workspace_id", "created_at", "job_id"],
        unique=False,
    )
    op.create_table(
        "submissions",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("creator", sa.Text(), nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("config", sa.LargeBinary(), nullable=False),
        sa.Column("bundles", sa.LargeBinary(), nullable=False),
        sa.Column("layers", sa.LargeBinary(), nullable=False),
        sa.Column("files", sa.LargeBinary(), nullable=False),
        sa.Column("wanted", sa.Text(), nullable=False),
        sa.Column("wanted_at", TIME, nullable=True),
        sa.Column("deaths", sa.Integer(), nullable=False),
        sa.Column("reached", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_submissions_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_submissions")),
    )
