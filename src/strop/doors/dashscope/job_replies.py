"""Jobs, checkpoints, events and spans -> what DashScope's clients see of them: its field names, then ours."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from strop.schema.job import Checkpoint, Event, JobStatus, LogLine
from strop.service.job_record import JobRecord

GROUP = "llm"


def job_reply(record: JobRecord, language: str) -> dict[str, Any]:
    """A job. `code` and `message` only where it failed: clients take any `code` for an error."""
    job, submission = record.job, record.submission
    creator = submission.creator if submission is not None else "local"
    training: dict[str, Any] = job.config.get("training", {})
    reply: dict[str, Any] = {
        "job_id": job.job_id,
        "job_name": job.name,
        "status": job.status.value,
        "model": job.model,
        "base_model": job.model,
        "finetuned_output": job.config.get("tuned_model_name") or job.job_id,
        "hyper_parameters": _flat(training.get("hyper_parameters", {})),
        "training_type": training.get("type", "reinforcement"),
        "create_time": moment(job.created_at),
        "start_time": moment(job.started_at),
        "end_time": moment(job.ended_at),
        "user_identity": job.workspace_id,
        "workspace_id": job.workspace_id,
        "creator": creator,
        "modifier": creator,
        "group": GROUP,
    }
    if submission is not None:
        files = submission.files
        reply["training_file_ids"] = [file_id for kind, file_id, _ in files if kind == "training"]
        reply["validation_file_ids"] = [file_id for kind, file_id, _ in files if kind == "validation"]
    if job.status is JobStatus.FAILED:
        reply |= {"code": "TrainingFailed", "message": job.error_in(language) or "the job failed"}
    return reply


def checkpoint_reply(checkpoint: Checkpoint, model_name: str, *, best: bool) -> dict[str, Any]:
    return {
        "checkpoint_id": checkpoint.checkpoint_id,
        "job_id": checkpoint.job_id,
        "step": checkpoint.step,
        "status": "SUCCEEDED" if checkpoint.published else "PENDING",
        "published": checkpoint.published,
        "model_name": model_name,
        "validation": checkpoint.validation,
        "best": best,
        "policy_version": checkpoint.policy_version,
        "create_time": moment(checkpoint.created_at),
    }


def saved_reply(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint as it comes in the stream. The folder is of use on the server's machine only."""
    return {
        "step": checkpoint.step,
        "folder": str(checkpoint.folder),
        "validation": checkpoint.validation,
        "best": checkpoint.best,
        "published": checkpoint.published,
        "policy_version": checkpoint.policy_version,
    }


def event_reply(event: Event, language: str) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "message": event.message_in(language),
        "step": event.step,
        "data": event.data,
        "time": moment(event.created_at),
    }


def line_text(line: LogLine) -> str:
    return f"{moment(line.created_at)} [{line.component}] {line.text}"


def moment(when: datetime | None) -> str | None:
    """UTC, in the form that DashScope uses."""
    return None if when is None else when.strftime("%Y-%m-%d %H:%M:%S")


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not isinstance(value, dict | list)}
