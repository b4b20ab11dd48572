"""Steps of `client.evaluations`: measure a model, look at it, wait for it, end it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from strop.client import submission
from strop.client.files import segment
from strop.client.submission import Say
from strop.client.tuning import Tuning
from strop.client.wire import LONG_S, Call, Pause, Steps, listed, typed, without_empty
from strop.errors import ConfigError, Problem, UnavailableError
from strop.locales import msg
from strop.schema.job import JobStatus
from strop.schema.responses import EvaluationInfo, Listed

_FIRST_POLL_S, _LONGEST_POLL_S = 0.5, 5.0


def create(body: Mapping[str, Any]) -> Steps[EvaluationInfo]:
    """Measure what the body names, in the wire's form; `run` makes that of a job's functions and rows.

    Raises:
        RequestError: everything that is wrong with it and with its rows.
    """
    reply = yield Call(method="POST", path="evaluations", body=body, idempotent=False, timeout_s=LONG_S)
    return typed(EvaluationInfo, reply)


def run(
    tuning: Tuning,
    workspace: Path,
    subject: Mapping[str, str],
    *,
    n_rollouts: int = 1,
    temperature: float | None = None,
    say: Say | None = None,
) -> Steps[EvaluationInfo]:
    """Send a job's functions and validation rows, and measure `subject` with them: `{"model": NAME}`,
    `{"checkpoint_id": ID}` or `{"deployed_model": NAME}`.

    Raises:
        ConfigError: no validation rows. StropError: the server refused.
    """
    rows = [one for one in tuning.datasets if one.type == "validation"]
    if not rows:
        problem = Problem(
            place="datasets", message=msg("none of type validation"), fix=msg("add one, or name files")
        )
        raise ConfigError("evaluation", [problem])
    yield from submission.register(tuning.functions, workspace, say, start=False)
    yield from submission.upload(rows, workspace, say)
    sent = submission.body(tuning.model_copy(update={"datasets": rows}))
    known = ("max_tokens", "max_length", "max_prompt_length", "seed", "max_attempts", "max_failure_rate")
    hyper = {key: value for key, value in sent.get("hyper_parameters", {}).items() if key in known}
    if temperature is None:
        temperature = 1.0 if n_rollouts > 1 else 0.0
    body = {
        **subject,
        "name": sent.get("job_name"),
        "datasets": sent.get("validation_datasets"),
        "rollout": sent.get("rollout"),
        "rewards": sent.get("rewards"),
        "hyper_parameters": hyper,
        "n_rollouts": n_rollouts,
        "temperature": temperature,
    }
    return (yield from create(without_empty(body)))


def get(evaluation_id: str) -> Steps[EvaluationInfo]:
    """One evaluation, with the results that are there by now."""
    return typed(EvaluationInfo, (yield Call(method="GET", path=_path(evaluation_id))))


def list_(
    *, page_no: int = 1, page_size: int = 10, status: JobStatus | str | None = None
) -> Steps[Listed[EvaluationInfo]]:
    """Evaluations, newest first."""
    params = {"page_no": page_no, "page_size": page_size, "status": str(status) if status else None}
    return listed(
        EvaluationInfo, (yield Call(method="GET", path="evaluations", params=params)), "evaluations"
    )


def cancel(evaluation_id: str) -> Steps[EvaluationInfo]:
    """End an evaluation; what was measured stays."""
    return typed(EvaluationInfo, (yield Call(method="POST", path=f"{_path(evaluation_id)}/cancel")))


def delete(evaluation_id: str) -> Steps[None]:
    """Delete an ended evaluation with its trajectories."""
    yield Call(method="DELETE", path=_path(evaluation_id), idempotent=False)


def wait(evaluation_id: str, *, timeout_s: float | None = None) -> Steps[EvaluationInfo]:
    """Wait until an evaluation has ended, however it ended: look at its `status`.

    Raises:
        UnavailableError: it is still going on after `timeout_s` seconds.
    """
    give_up = None if timeout_s is None else time.monotonic() + timeout_s
    poll_s = _FIRST_POLL_S
    while True:
        found = yield from get(evaluation_id)
        if found.status.final:
            return found
        left = None if give_up is None else give_up - time.monotonic()
        if left is not None and left <= 0:
            raise UnavailableError(
                msg(
                    "evaluation {evaluation_id!r} is {status} after {timeout_s:g} s",
                    evaluation_id=evaluation_id,
                    status=found.status,
                    timeout_s=timeout_s,
                ),
                fix=msg("it goes on; wait again, or longer"),
            )
        yield Pause(poll_s if left is None else min(poll_s, left))
        poll_s = min(poll_s * 1.5, _LONGEST_POLL_S)


def _path(evaluation_id: str) -> str:
    return f"evaluations/{segment(evaluation_id)}"
