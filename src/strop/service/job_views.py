"""Rows of the store -> what clients see of a job. Field names are DashScope's, then ours."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from strop.schema.job import Checkpoint, Event, Job, JobStatus, LogLine
from strop.schema.submission import Submission
from strop.store.trajectories import Recorded

GROUP = "llm"


def job_shown(job: Job, submission: Submission | None, language: str) -> dict[str, Any]:
    """A job. `code` and `message` only where it failed: clients take any `code` for an error."""
    creator = submission.creator if submission is not None else "local"
    training: dict[str, Any] = job.config.get("training", {})
    shown: dict[str, Any] = {
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
        shown["training_file_ids"] = [file_id for kind, file_id, _ in files if kind == "training"]
        shown["validation_file_ids"] = [file_id for kind, file_id, _ in files if kind == "validation"]
    if job.status is JobStatus.FAILED:
        shown |= {"code": "TrainingFailed", "message": job.error_in(language) or "the job failed"}
    return shown


def checkpoint_shown(checkpoint: Checkpoint, model_name: str, *, best: bool) -> dict[str, Any]:
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


def saved_shown(checkpoint: Checkpoint) -> dict[str, Any]:
    """A checkpoint as the stream tells of it. The folder is of use on the server's machine only."""
    return {
        "step": checkpoint.step,
        "folder": str(checkpoint.folder),
        "validation": checkpoint.validation,
        "best": checkpoint.best,
        "published": checkpoint.published,
        "policy_version": checkpoint.policy_version,
    }


def event_shown(event: Event, language: str) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "message": event.message_in(language),
        "step": event.step,
        "data": event.data,
        "time": moment(event.created_at),
    }


def line_shown(line: LogLine) -> str:
    return f"{moment(line.created_at)} [{line.component}] {line.text}"


def trajectory_shown(recorded: Recorded) -> dict[str, Any]:
    """With its turns where they were read. Token ids and logprobs are left to the store: they are long."""
    one = recorded.trajectory
    shown: dict[str, Any] = {
        "rollout_id": one.rollout_id,
        "attempt_id": one.attempt_id,
        "group_id": one.group_id,
        "sample_id": one.sample_id,
        "step": recorded.step,
        "split": recorded.split,
        "attempts": one.attempts,
        "status": one.status.value,
        "reward": one.reward,
        "reward_parts": one.reward_parts,
        "reward_metrics": one.reward_metrics,
        "rollout_metrics": one.rollout_metrics,
        "rollout_extra": one.rollout_extra,
        "ground_truth": recorded.ground_truth,
        "messages": list(one.messages),
        "num_turns": recorded.num_turns,
        "num_sampled_tokens": recorded.num_sampled_tokens,
        "rollout_s": one.rollout_s,
        "reward_s": one.reward_s,
        "error": one.error,
        "error_code": one.error_code,
    }
    if one.turns:
        shown["turns"] = [
            {
                "index": turn.index,
                "messages": list(turn.messages),
                "response": turn.response,
                "finish_reason": turn.finish_reason.value,
                "temperature": turn.temperature,
                "num_prompt_tokens": len(turn.prompt_ids),
                "num_completion_tokens": len(turn.completion_ids),
                "latency_s": turn.latency_s,
            }
            for turn in one.turns
        ]
    return shown


def moment(when: datetime | None) -> str | None:
    """UTC, in the form that DashScope uses."""
    return None if when is None else when.strftime("%Y-%m-%d %H:%M:%S")


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not isinstance(value, dict | list)}
