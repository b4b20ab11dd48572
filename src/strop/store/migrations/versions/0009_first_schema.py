"""The first schema that a release writes.

Its number is 0009 because databases of development versions went through 0001 to 0008 before it: one at 0009
has exactly these tables and opens as it is, and an older one is recognised by its number.
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = None

TIME = sa.DateTime(timezone=True)
NUMBER: sa.Double[float] = sa.Double()
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _access()
    _jobs()
    _record()
    _trajectories()
    _diagnosis()
    _files_and_models()
    _functions()


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


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="training", nullable=False),
        sa.Column("workspace_id", sa.Text(), server_default="default", nullable=False),
        sa.Column("config", sa.LargeBinary(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("error_zh", sa.Text(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("started_at", TIME, nullable=True),
        sa.Column("ended_at", TIME, nullable=True),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("process_started", sa.Text(), nullable=True),
        sa.Column("resumes", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_created_at_job_id"), "jobs", ["created_at", "job_id"], unique=False)
    op.create_index(
        op.f("ix_jobs_workspace_id_created_at_job_id"),
        "jobs",
        ["workspace_id", "created_at", "job_id"],
        unique=False,
    )
    op.create_table(
        "job_moves",
        sa.Column("id", ROW_ID, nullable=False),
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
        "progress",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("done", sa.Integer(), nullable=False),
        sa.Column("total", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_progress_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_progress")),
    )
    op.create_table(
        "events",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("message_zh", sa.Text(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_events_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index(op.f("ix_events_job_id_id"), "events", ["job_id", "id"], unique=False)
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
        sa.Column("owner", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_submissions_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_submissions")),
    )


def _record() -> None:
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
    op.create_table(
        "checkpoints",
        sa.Column("checkpoint_id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column("validation", NUMBER, nullable=True),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("best", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("removed_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_checkpoints_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("checkpoint_id", name=op.f("pk_checkpoints")),
        sa.UniqueConstraint("job_id", "step", name=op.f("uq_checkpoints_job_id_step")),
    )
    op.create_table(
        "logs",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("component", sa.Text(), nullable=False),
        sa.Column("stream", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_logs_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_logs")),
    )
    op.create_index(op.f("ix_logs_job_id_component_id"), "logs", ["job_id", "component", "id"], unique=False)
    op.create_index(op.f("ix_logs_job_id_id"), "logs", ["job_id", "id"], unique=False)


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
        sa.Column("overlong_penalty", NUMBER, server_default=sa.text("0"), nullable=False),
        sa.Column("reward_parts", sa.LargeBinary(), nullable=False),
        sa.Column("reward_metrics", sa.LargeBinary(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("failed_attempts", sa.LargeBinary(), nullable=True),
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
        "ix_trajectories_filters",
        "trajectories",
        ["job_id", "split", "id", "status", "reward", "step", "sample_id"],
        unique=False,
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
    op.create_index(
        "ix_trajectories_samples",
        "trajectories",
        ["job_id", "split", "sample_id", "step", "status", "reward"],
        unique=False,
    )
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


def _diagnosis() -> None:
    op.create_table(
        "spans",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("trace_id", sa.Text(), nullable=False),
        sa.Column("span_id", sa.Text(), nullable=False),
        sa.Column("parent_span_id", sa.Text(), nullable=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("start_ns", sa.BigInteger(), nullable=False),
        sa.Column("duration_ns", sa.BigInteger(), nullable=False),
        sa.Column("rollout_id", sa.Text(), nullable=True),
        sa.Column("sample_id", sa.Text(), nullable=True),
        sa.Column("attempt_id", sa.Text(), nullable=True),
        sa.Column("preview", sa.Text(), nullable=False),
        sa.Column("attributes", sa.LargeBinary(), nullable=False),
        sa.Column("events", sa.LargeBinary(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("service", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_spans_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spans")),
    )
    op.create_index(op.f("ix_spans_job_id_id"), "spans", ["job_id", "id"], unique=False)
    op.create_index(op.f("ix_spans_job_id_rollout_id"), "spans", ["job_id", "rollout_id"], unique=False)
    op.create_index(
        op.f("ix_spans_job_id_trace_id_span_id"), "spans", ["job_id", "trace_id", "span_id"], unique=True
    )
    op.create_table(
        "findings",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("first_step", sa.Integer(), nullable=False),
        sa.Column("last_step", sa.Integer(), nullable=False),
        sa.Column("ended_step", sa.Integer(), nullable=True),
        sa.Column("summary", sa.LargeBinary(), nullable=False),
        sa.Column("evidence", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.job_id"], name=op.f("fk_findings_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_findings")),
    )
    op.create_index(
        op.f("ix_findings_job_id_rule_first_step"), "findings", ["job_id", "rule", "first_step"], unique=True
    )


def _files_and_models() -> None:
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
    op.create_index(op.f("ix_files_sha256"), "files", ["sha256"], unique=False)
    op.create_index(
        op.f("ix_files_workspace_id_created_at_file_id"),
        "files",
        ["workspace_id", "created_at", "file_id"],
        unique=False,
    )
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
    op.create_index(op.f("ix_models_job_id"), "models", ["job_id"], unique=False)
    op.create_index(op.f("ix_models_workspace_id"), "models", ["workspace_id"], unique=False)
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
    op.create_index(op.f("ix_deployments_model_name"), "deployments", ["model_name"], unique=False)
    op.create_index(
        op.f("ix_deployments_workspace_id_created_at_deployed_model"),
        "deployments",
        ["workspace_id", "created_at", "deployed_model"],
        unique=False,
    )


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
        sa.Column("id", ROW_ID, nullable=False),
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
