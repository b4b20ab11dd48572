"""What happens in a run, one type a kind: the loop publishes them, and whoever subscribed to the run receives
them. See `tracing.event_bus`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strop.schema.job import JobStatus
from strop.schema.trajectory import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusChanged:
    """`error` says why, where the run failed."""

    status: JobStatus
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMeasured:
    """Metrics of a step. Several may come for one step, with different names."""

    step: int
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutsFinished:
    """`split` is `train`, `validation`, or the dataset's name in an evaluation."""

    step: int
    groups: tuple[Group, ...]
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """A checkpoint is whole on disk. `best`: no checkpoint of the run was validated better so far."""

    step: int
    folder: Path
    policy_version: int
    validation: float | None
    published: bool
    best: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRemoved:
    """The folder is about to go, or was found gone: no list may name it any more."""

    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What a person should know, as `schema.job.Event` keeps it."""

    kind: str
    message: str
    step: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseAdvanced:
    """`done` of `total` in a phase (`rollout`, `validation`, `update`) of a step."""

    step: int
    phase: str
    done: int
    total: int


RunEvent = (
    StatusChanged
    | StepMeasured
    | RolloutsFinished
    | CheckpointSaved
    | CheckpointRemoved
    | Noted
    | PhaseAdvanced
)
