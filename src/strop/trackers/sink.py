"""What a tracker is to the process that feeds it, and how a sink is made of a job's settings."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from strop.schema.job import JobStatus
from strop.schema.watching import TrackerConfig, TrackerType

_MODULES = {
    TrackerType.TENSORBOARD: "tensorboard",
    TrackerType.MLFLOW: "mlflow",
    TrackerType.WANDB: "wandb",
    TrackerType.PROMETHEUS: "prometheus_client",
}


class TrackedRun(BaseModel):
    """The run as a tracker knows it. `config` is the resolved one, without secrets; `folder` is the run's."""

    model_config = ConfigDict(frozen=True)

    job_id: str
    name: str
    folder: Path
    config: dict[str, Any]

    def settings(self) -> dict[str, str]:
        """The configuration as flat names and texts; what is not set is left out."""
        return {name: text for name, text in _flat(self.config, "") if not name.startswith("origins")}


class Sink(Protocol):
    """One tracker, connected. A run that is resumed under the same id continues in the same place.

    Raises:
        Exception: whatever its library raises; its process reports it and continues.
    """

    @property
    def where(self) -> str:
        """Where to find the curves."""
        ...

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Values of a step, all finite; more may come for the same step."""
        ...

    def close(self, status: JobStatus | None) -> None:
        """Write what is held back. `status` is None where the run did not end by itself."""
        ...


def missing_extra(kind: TrackerType) -> str | None:
    """The extra to install before this tracker can be used; None where its package is installed."""
    return None if find_spec(_MODULES[kind]) is not None else kind.value


def open_sink(config: TrackerConfig, run: TrackedRun) -> Sink:
    """Connect to the tracker; its library is imported here."""
    match config.type:
        case TrackerType.TENSORBOARD:
            from strop.trackers.tensorboard import TensorBoard

            return TensorBoard(run)
        case TrackerType.MLFLOW:
            from strop.trackers.mlflow import MLflow

            return MLflow(config, run)
        case TrackerType.WANDB:
            from strop.trackers.wandb import WeightsAndBiases

            return WeightsAndBiases(config, run)
        case TrackerType.PROMETHEUS:
            from strop.trackers.prometheus import Prometheus

            return Prometheus(config, run)


def _flat(value: object, name: str) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        items = [(f"{name}.{key}" if name else str(key), item) for key, item in value.items()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    elif isinstance(value, list):
        items = [(f"{name}.{index}", item) for index, item in enumerate(value)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    else:
        return [(name, str(value))] if value is not None else []
    return [pair for key, item in items for pair in _flat(item, key)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
