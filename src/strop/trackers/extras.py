"""Tracker -> the package it needs and the extra that brings it. Looks, and imports nothing."""

from __future__ import annotations

from importlib.util import find_spec

from strop.schema.watching import TrackerType

_MODULES = {
    TrackerType.TENSORBOARD: "tensorboard",
    TrackerType.MLFLOW: "mlflow",
    TrackerType.WANDB: "wandb",
    TrackerType.PROMETHEUS: "prometheus_client",
}


def missing_extra(kind: TrackerType) -> str | None:
    """The extra to install before this tracker can be used; None where its package is there."""
    return None if find_spec(_MODULES[kind]) is not None else kind.value
