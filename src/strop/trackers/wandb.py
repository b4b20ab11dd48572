"""Values -> a run of Weights & Biases: on its server, or offline in the run's folder for `wandb sync`."""

from __future__ import annotations

from collections.abc import Mapping

import wandb

from strop.schema.job import JobStatus
from strop.schema.watching import TrackerConfig
from strop.trackers.sink import TrackedRun

STEP = "step"


class WeightsAndBiases:
    """The run's id is the job's, so that a job that is resumed continues it.

    Steps are a metric of their own: its own counter only rises, and a run that goes back to a checkpoint
    repeats steps.
    """

    def __init__(self, config: TrackerConfig, run: TrackedRun) -> None:
        self._run = wandb.init(
            project=config.project or "strop",
            entity=config.entity,
            mode=config.mode,
            id=run.job_id,
            name=run.name,
            resume="allow",
            dir=str(run.folder),
            config=run.config,
            settings=wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True),
        )
        self._run.define_metric("*", step_metric=STEP)
        self.where = str(self._run.dir if self._run.offline else self._run.url)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, STEP: step})

    def close(self, status: JobStatus | None) -> None:
        self._run.finish(exit_code=0 if status in (JobStatus.SUCCEEDED, JobStatus.CANCELED) else 1)
