"""Values -> a run of MLflow, where the job or `MLFLOW_TRACKING_URI` says, else in the run's folder."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from strop.schema.job import JobStatus
from strop.schema.watching import TrackerConfig
from strop.trackers.sink import TrackedRun

JOB_TAG = "strop.job_id"
_ENDS = {JobStatus.SUCCEEDED: "FINISHED", JobStatus.FAILED: "FAILED"}
_AT_ONCE = 100
"""Parameters that MLflow takes in one call; a thousand metrics are more than a step has."""
_LONGEST = 500
"""Characters of a parameter that every version and store of MLflow takes."""


class MLflow:
    """One MLflow run a job: a job that is resumed continues it."""

    def __init__(self, config: TrackerConfig, run: TrackedRun) -> None:
        uri = (
            config.tracking_uri
            or os.environ.get("MLFLOW_TRACKING_URI")
            or f"sqlite:///{run.folder / 'mlflow.db'}"
        )
        self._client = MlflowClient(uri)
        name = config.experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "strop"
        experiment = self._client.get_experiment_by_name(name)
        experiment_id = experiment.experiment_id if experiment else self._client.create_experiment(name)
        found = self._client.search_runs([experiment_id], f"tags.`{JOB_TAG}` = '{run.job_id}'", max_results=1)
        if found:
            self._run_id = found[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
        else:
            tags = {JOB_TAG: run.job_id, "mlflow.runName": run.name}
            self._run_id = self._client.create_run(experiment_id, tags=tags).info.run_id
            params = [Param(_name(key), text[:_LONGEST]) for key, text in run.settings().items()]
            for start in range(0, len(params), _AT_ONCE):
                self._client.log_batch(self._run_id, params=params[start : start + _AT_ONCE])
        self.where = f"{uri} {name}/{self._run_id}"

    def log(self, step: int, values: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(_name(name), value, now, step) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self, status: JobStatus | None) -> None:
        self._client.set_terminated(self._run_id, _ENDS.get(status, "KILLED") if status else "KILLED")


def _name(name: str) -> str:
    """MLflow takes letters of any script, digits and `_-./ :`; others become `_`: `mean_1` for `mean@1`."""
    return re.sub(r"[^/\w.\- :]", "_", name)
