"""The first schema: jobs and all that belongs to them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

NUMBER: sa.Double[float] = sa.Double()
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _jobs()
    _metrics()
    _trajectories()
    _turns()
    _checkpoints()
    _logs()
    _events()


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("config", sa.LargeBinary(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_created_at_job_id"), "jobs", ["created_at", "job_id"], unique=False)


def _metrics() -> None:
    op.create_table(
        "metrics",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", NUMBER, nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_metrics_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "name", "step", name=op.f("pk_metrics")),
        sqlite_with_rowid=False,
    )


def _trajectories() -> None:
    op.create_table(
        "trajectories",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("rollout_id", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("group_id", sa.Text(), nullable=False),
        sa.Column("sample_id", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("messages", sa.LargeBinary(), nullable=False),
        sa.Column("ground_truth", sa.LargeBinary(), nullable=False),
        sa.Column("rollout_extra", sa.LargeBinary(), nullable=False),
        sa.Column("rollout_metrics", sa.LargeBinary(), nullable=False),
        sa.Column("preset_reward", NUMBER, nullable=True),
        sa.Column("reward", NUMBER, nullable=True),
        sa.Column("reward_parts", sa.LargeBinary(), nullable=False),
        sa.Column("reward_metrics", sa.LargeBinary(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("rollout_s", NUMBER, nullable=False),
        sa.Column("reward_s", NUMBER, nullable=False),
        sa.Column("num_turns", sa.Integer(), nullable=False),
        sa.Column("num_sampled_tokens", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_trajectories_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trajectories")),
    )
    op.create_index(
        op.f("ix_trajectories_job_id_rollout_id_step_split"),
        "trajectories",
        ["job_id", "rollout_id", "step", "split"],
        unique=True,
    )
    op.create_index(
        op.f("ix_trajectories_job_id_sample_id_id"),
        "trajectories",
        ["job_id", "sample_id", "id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_trajectories_job_id_step_split_id"),
        "trajectories",
        ["job_id", "step", "split", "id"],
        unique=False,
    )


def _turns() -> None:
    op.create_table(
        "turns",
        sa.Column("trajectory_id", ROW_ID, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("turn_index", sa.Integer(), nullable=False),
        sa.Column("prompt_ids", sa.LargeBinary(), nullable=False),
        sa.Column("completion_ids", sa.LargeBinary(), nullable=False),
        sa.Column("behaviour_logprobs", sa.LargeBinary(), nullable=False),
        sa.Column("policy_versions", sa.LargeBinary(), nullable=False),
        sa.Column("temperature", NUMBER, nullable=False),
        sa.Column("finish_reason", sa.Text(), nullable=False),
        sa.Column("messages", sa.LargeBinary(), nullable=False),
        sa.Column("response", sa.LargeBinary(), nullable=False),
        sa.Column("latency_s", NUMBER, nullable=False),
        sa.ForeignKeyConstraint(
            ["trajectory_id"],
            ["trajectories.id"],
            name=op.f("fk_turns_trajectory_id_trajectories"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("trajectory_id", "position", name=op.f("pk_turns")),
    )


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("checkpoint_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("validation", NUMBER, nullable=True),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_checkpoints_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("checkpoint_id", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint("job_id", "step", name=op.f("uq_checkpoints_job_id_step")),
    )


def _logs() -> None:
    op.create_table(
        "logs",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("component", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_logs_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logs")),
    )
    op.create_index(op.f("ix_logs_job_id_component_id"), "logs", ["job_id", "component", "id"], unique=False)
    op.create_index(op.f("ix_logs_job_id_id"), "logs", ["job_id", "id"], unique=False)


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_events_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_job_id_id"), "events", ["job_id", "id"], unique=False)
