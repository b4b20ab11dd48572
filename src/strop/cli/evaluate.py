"""A submitted evaluation -> engine, gateway and functions, without a learner; every dataset measured and recorded.

`strop train` does it for the server, as it does trainings.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strop.cli.checking import with_dtypes
from strop.cli.job_record import Submitted, open_record, telling_failed_start
from strop.cli.run_folder import claim_folder
from strop.cli.sampling_backends import load_backends
from strop.cli.session import new_job
from strop.cli.text import t
from strop.config.inputs import hash_inputs
from strop.data.dataset import Dataset, load_dataset
from strop.errors import DataError, Problem, told_of
from strop.locales import msg
from strop.rl.failures import stop_if_too_many_failed
from strop.rl.metrics import validation_metrics
from strop.rl.reward import reward, reward_plan
from strop.rl.rollout import rollout, rollout_plan
from strop.schema.function import TaskStatus
from strop.schema.job import JobStatus
from strop.schema.submission import EVALUATED_EVENT
from strop.tracing.event_bus import EventBus

if TYPE_CHECKING:
    from strop.config.job import JobConfig
    from strop.inference.gateway import Gateway
    from strop.learners.models import OnProgress
    from strop.rl.interfaces import Recorder
    from strop.rl.rollout import RolloutPlan
    from strop.schema.submission import Evaluation
    from strop.schema.trajectory import Group
    from strop.workers.functions import FunctionPool

MAX_SEQUENCES = 64
"""Sequences the engine batches at most."""


class CancelToken:
    """Has the `set` of a stop flag: cancels the evaluation at once, since nothing of it has to be saved."""

    def __init__(self) -> None:
        self.asked = False
        self.task: asyncio.Task[Any] | None = None

    def set(self) -> None:
        self.asked = True
        if self.task is not None:
            self.task.cancel()


async def evaluate(
    config: JobConfig,
    evaluation: Evaluation,
    *,
    submitted: Submitted,
    folder: Path,
    pythons: Mapping[str, Path],
    say: OnProgress,
    cancel_token: CancelToken,
    settle: Callable[[], None],
) -> None:
    """Measure and record; the status is told like a training's.

    Raises:
        DataError, FunctionError, ModelError, TrainingError: it cannot be measured; the job is FAILED then.
    """
    config = with_dtypes(config)
    job_id = submitted.job_id
    async with AsyncExitStack() as stack:
        held = stack.enter_context(ExitStack())
        claim_folder(held, job_id, out=folder, resumed=None, anew=False, submitted=True)
        sampling = load_backends(config, max_sequences=MAX_SEQUENCES, say=say)
        datasets = _load(config, sampling.gateway)
        recorder = open_record(
            held,
            new_job(config, job_id),
            folder=folder,
            resumed=None,
            say=say,
            inputs=hash_inputs(config, *datasets),
            submitted=submitted,
        )
        pool = sampling.functions(config, job_id, recorder, pythons)
        told = EventBus(submitted.around(recorder))
        with telling_failed_start(told):
            await sampling.start(stack, pool, say)
        measuring = _Measuring(config, evaluation, job_id, sampling.gateway, pool, told)
        try:
            cancel_token.task = asyncio.create_task(measuring.all(datasets))
            if cancel_token.asked:
                cancel_token.task.cancel()
            await cancel_token.task
            told.status(JobStatus.SUCCEEDED)
        except asyncio.CancelledError:
            told.status(JobStatus.CANCELED)
            if not cancel_token.asked:
                raise
        except Exception as error:
            told.status(JobStatus.FAILED, error=told_of(error))
            raise
        finally:
            settle()


class _Measuring:
    """One dataset after the other."""

    def __init__(
        self,
        config: JobConfig,
        evaluation: Evaluation,
        job_id: str,
        gateway: Gateway,
        pool: FunctionPool,
        recorder: Recorder,
    ) -> None:
        plan = rollout_plan(config, job_id)
        self._plan: RolloutPlan = replace(
            plan,
            n_rollouts=evaluation.n_rollouts,
            training=False,
            sampling=replace(plan.sampling, temperature=evaluation.temperature),
        )
        self._rewards = reward_plan(config, job_id)
        self._evaluation = evaluation
        self._max_failure_rate = config.hyper_parameters.max_failure_rate
        self._gateway, self._pool, self._recorder = gateway, pool, recorder

    async def all(self, datasets: list[Dataset]) -> None:
        for index, (name, dataset) in enumerate(zip(self._evaluation.datasets, datasets, strict=True)):
            plan = replace(self._plan, prefix=f"d{index}")
            groups = await rollout(dataset.samples, plan, self._gateway, self._pool, self._report)
            groups = await reward(groups, self._rewards, self._pool)
            self._recorder.trajectories(0, groups, split=name)
            stop_if_too_many_failed(
                groups, self._max_failure_rate, where=msg("evaluation on {name}", name=name)
            )
            result = measured(name, groups, n_rollouts=plan.n_rollouts)
            mean = f"mean@{plan.n_rollouts} {result['mean']}"
            text = msg("{name}: {mean}", name=name, mean=mean)
            self._recorder.event(EVALUATED_EVENT, text, data=result)

    def _report(self, done: int, total: int) -> None:
        self._recorder.progress(0, "rollout", done, total)


def measured(name: str, groups: tuple[Group, ...], *, n_rollouts: int) -> dict[str, Any]:
    """What is told of a dataset: the mean over samples of each one's mean over its scored rollouts."""
    head = f"validation/{name}/reward/"
    values = validation_metrics(groups, source=name)
    members = [member for group in groups for member in group.trajectories]
    parts = {
        key.removeprefix(head).removesuffix("/mean@1"): value
        for key, value in values.items()
        if key.startswith(head) and key != f"{head}mean@1"
    }
    return {
        "dataset": name,
        "mean": _finite(values[f"{head}mean@1"]),
        "parts": {part: _finite(value) for part, value in parts.items()},
        "n_rollouts": n_rollouts,
        "num_samples": len(groups),
        "num_failed": sum(member.status is TaskStatus.FAILED for member in members),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _load(config: JobConfig, gateway: Gateway) -> list[Dataset]:
    loaded: list[Dataset] = []
    problems: list[Problem] = []
    for dataset in config.datasets:
        try:
            loaded.append(
                load_dataset(
                    Path(dataset.file_name),
                    max_prompt_length=config.hyper_parameters.max_prompt_length,
                    prompt_length=gateway.prompt_length,
                )
            )
        except DataError as error:
            problems += error.problems
    if problems:
        raise DataError(t("datasets"), problems)
    return loaded
