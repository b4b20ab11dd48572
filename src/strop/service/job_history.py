"""What a job has recorded, for callers who may see it: curves, checkpoints, rollouts as plain values."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from strop.schema.access import Caller
from strop.schema.job import Checkpoint
from strop.service.services import Services
from strop.store.checkpoints import best_checkpoint, list_checkpoints
from strop.store.jobs import get_job
from strop.store.metrics import metric_names, step_metrics
from strop.store.trajectories import Recorded
from strop.tracing.ark_view import by_ark_name

Curves = dict[str, list[tuple[int, float]]]
"""(step, value) by a metric's name, in order of steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Those of a job that are still there, in order of steps, and the one that validated best. `model_name`:
    what the job's model is called."""

    all: Sequence[Checkpoint]
    best: Checkpoint | None
    model_name: str


@contextmanager
def reading(services: Services, caller: Caller, job_id: str) -> Generator[Session]:
    """A session in which to read what a job has recorded.

    Raises:
        MissingError: no such job in the caller's workspace.
    """
    with services.database.read() as session:
        get_job(session, job_id, workspace_id=caller.workspace_id)
        yield session


def curves(
    services: Services, caller: Caller, job_id: str, names: Sequence[str] | None = None, *, ark: bool = False
) -> Curves:
    """All curves of a job or the named ones; with `ark` by the names that Ark has, without those it lacks."""
    with reading(services, caller, job_id) as session:
        if not ark:
            return step_metrics(session, job_id, names)
        known = by_ark_name(metric_names(session, job_id))
        ours = {name: known[name] for name in names or known if name in known}
        found = step_metrics(session, job_id, list(ours.values()))
        return {name: found[own] for name, own in ours.items()}


def checkpoints(services: Services, caller: Caller, job_id: str) -> Checkpoints:
    """Raises MissingError: no such job in the caller's workspace."""
    with services.database.read() as session:
        job = get_job(session, job_id, workspace_id=caller.workspace_id)
        found = list_checkpoints(session, job_id)
    name = str(job.config.get("tuned_model_name") or job_id)
    return Checkpoints(all=found, best=best_checkpoint(job, found), model_name=name)


def trajectory_values(recorded: Recorded) -> dict[str, Any]:
    """One rollout as the API and the console give it out, with its turns where they were read. Token ids and
    logprobs are left out: they are long."""
    one = recorded.trajectory
    values: dict[str, Any] = {
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
        values["turns"] = [
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
    return values
