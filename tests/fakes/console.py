"""A job as a trainer would have recorded it: curves, rollouts with tools and with hostile words, logs, a
checkpoint. For tests of pages and of the queries below them.

`from fakes.console import record_job`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from strop.schema.function import TaskStatus
from strop.schema.job import Checkpoint, Event, Job, JobStatus, LogLine
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason
from strop.schema.trajectory import FailedAttempt, Group, Trajectory, Turn
from strop.store.checkpoints import checkpoint_id, record_checkpoint
from strop.store.database import Database
from strop.store.events import record_event
from strop.store.jobs import create_job, move_job
from strop.store.logs import record_lines
from strop.store.metrics import record_metrics
from strop.store.trajectories import record_trajectories

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\"'&"
"""What a model may say."""

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

CONFIG: dict[str, Any] = {
    "name": "tiny",
    "model": {"name": "smollm2-135m"},
    "tuned_model_name": "tiny-tuned",
    "datasets": [{"type": "training", "file_name": "data/train.jsonl"}],
    "functions": [
        {"type": "rollout", "name": "agent", "weight": 1.0, "fcmodel": {"classpath": "agent.py:Agent"},
         "runtime": {"env": {"TOKEN": "***"}}},
    ],
    "training": {
        "type": "reinforcement",
        "hyper_parameters": {"algorithm": "grpo", "learning_rate": 1e-6, "batch_size": 4, "n_rollouts": 2},
    },
    "origins": {
        "name": "job.yaml:1",
        "model.name": "job.yaml:2",
        "datasets[0].type": "job.yaml:4",
        "datasets[0].file_name": "job.yaml:4",
        "functions[0].type": "job.yaml:6",
        "functions[0].name": "job.yaml:6",
        "functions[0].weight": "default",
        "functions[0].fcmodel.classpath": "job.yaml:6",
        "functions[0].runtime.env.TOKEN": "job.yaml:7",
        "tuned_model_name": "default",
        "training.hyper_parameters.algorithm": "job.yaml:9",
        "training.hyper_parameters.learning_rate": "job.yaml:10",
        "training.hyper_parameters.batch_size": "default",
        "training.hyper_parameters.n_rollouts": "default of grpo",
    },
}  # fmt: skip


def record_job(
    database: Database,
    job_id: str = "ft-1",
    *,
    num_steps: int = 3,
    status: JobStatus = JobStatus.RUNNING,
    folder: Path = Path("nowhere"),
    name: str = "tiny",
    workspace_id: str = "default",
) -> Job:
    """Record it whole; step `n` has two samples with two rollouts each, rewards 0, 1, n/10 and a failure."""
    job = Job(
        job_id=job_id, name=name, status=JobStatus.PENDING, model="smollm2-135m", config=CONFIG,
        created_at=NOW, workspace_id=workspace_id,
    )  # fmt: skip
    with database.write() as session:
        create_job(session, job)
        move_job(session, job_id, JobStatus.RUNNING)
        record_event(session, _event(job_id, "planned", "10 steps", {"total_steps": 10}))
        record_event(session, _event(job_id, "note", HOSTILE, {}))
        for step in range(1, num_steps + 1):
            record_metrics(session, job_id, step, curves(step))
            record_trajectories(session, job_id, step, groups(step), split="train")
        record_lines(session, lines(job_id))
        record_checkpoint(session, _checkpoint(job_id, num_steps, folder))
        if status is not JobStatus.RUNNING:
            job = move_job(
                session, job_id, status, error="out of luck" if status is JobStatus.FAILED else None
            )
    return job


def curves(step: int) -> dict[str, float]:
    return {
        "critic/rewards/mean": step / 10,
        "critic/rewards/min": 0.0,
        "critic/rewards/max": 1.0,
        "actor/entropy": 1.0 / step,
        "actor/ppo_kl": float("nan") if step == 2 else 0.01,
        "actor/pg_clipfrac": 0.25,
        "timing/s/step": 2.0,
        "perf/total_num_tokens": 100.0,
        "validation/data/reward/mean@1": 0.25,
    }


def groups(step: int) -> tuple[Group, ...]:
    return tuple(
        Group(group_id=f"s{step}-{row}", sample=_sample(row), trajectories=pair)
        for row, pair in enumerate(
            (
                (_rollout(step, 0, 0, reward=0.0), _rollout(step, 0, 1, reward=1.0, tool=True)),
                (_rollout(step, 1, 0, reward=step / 10), _failed(step)),
            )
        )
    )


def lines(job_id: str) -> list[LogLine]:
    texts = [
        ("trainer", "stdout", "step 1"),
        ("function:agent", "stderr", "WARNING slow"),
        ("trainer", "stderr", "Traceback (most recent call last):"),
        ("trainer", "stderr", '  File "loop.py", line 3'),
        ("trainer", "stderr", f"ValueError: {HOSTILE}"),
        ("engine", "stdout", "step 2"),
    ]
    return [
        LogLine(job_id=job_id, component=component, stream=stream, text=text, created_at=NOW)
        for component, stream, text in texts
    ]


def _sample(row: int) -> Sample:
    return Sample(sample_id=f"train-{row}", row=row + 1, messages=[{"role": "user", "content": "2 + 2?"}])


def _rollout(step: int, row: int, index: int, *, reward: float, tool: bool = False) -> Trajectory:
    call = {"id": "call-1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
    asked: list[dict[str, Any]] = [{"role": "user", "content": "2 + 2?"}]
    if tool:
        first = {"role": "assistant", "content": "", "tool_calls": [call]}
        back = {"role": "tool", "tool_call_id": "call-1", "content": '{"sum": 4}'}
        said = [first, back, {"role": "assistant", "content": "It is 4."}]
    else:
        said = [{"role": "assistant", "content": f"Having thought: {HOSTILE}"}]
    answers = [(asked + said[:place], one) for place, one in enumerate(said) if one["role"] == "assistant"]
    turns = tuple(
        Turn(
            index=place, prompt_ids=(1, 2), completion_ids=(5, 6), behaviour_logprobs=(-0.01, -2.5),
            policy_versions=(step - 1, step), temperature=1.0, finish_reason=FinishReason.STOP,
            messages=tuple(before), response=answer, latency_s=0.5,
        )
        for place, (before, answer) in enumerate(answers)
    )  # fmt: skip
    return Trajectory(
        rollout_id=f"{step}-train-{row}-r{index}", attempt_id="a1", group_id=f"s{step}-{row}",
        sample_id=f"train-{row}", attempts=1, status=TaskStatus.SUCCESS, turns=turns,
        messages=tuple(asked + said), reward=reward, reward_parts={"score": reward},
        reward_metrics={"score": {"hit": reward}}, rollout_metrics={"calls": 1.0},
        rollout_s=1.5, reward_s=0.1,
    )  # fmt: skip


def _failed(step: int) -> Trajectory:
    return Trajectory(
        rollout_id=f"{step}-train-1-r1", attempt_id="a3", group_id=f"s{step}-1", sample_id="train-1",
        attempts=3, status=TaskStatus.FAILED, error="RuntimeError: no", error_code="exception",
        failed_attempts=(FailedAttempt(attempt_id="a1", error="TimeoutError", error_code="timeout"),),
    )  # fmt: skip


def _event(job_id: str, kind: str, message: str, data: dict[str, Any]) -> Event:
    return Event(job_id=job_id, kind=kind, message=message, data=data, created_at=NOW + timedelta(seconds=1))


def _checkpoint(job_id: str, step: int, folder: Path) -> Checkpoint:
    return Checkpoint(
        checkpoint_id=checkpoint_id(job_id, step), job_id=job_id, step=step, folder=folder,
        policy_version=step, validation=0.75, created_at=NOW,
    )  # fmt: skip
