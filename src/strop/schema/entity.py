"""Registered code: bundles as uploaded, entities (one class of a bundle), layers and instances."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from strop.schema.function import FunctionType


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Upload(_Record):
    """A code bundle that arrived under a client's `unique_key`; equal bundles share one blob."""

    workspace_id: str
    unique_key: str
    sha256: str
    size: int
    created_at: datetime


class Entity(_Record):
    """A registered function: class `func` in file `name` of a bundle. Its `unique_key` makes it once only."""

    entity_id: str
    workspace_id: str
    type: FunctionType
    name: str
    func: str
    unique_key: str
    bundle: str
    created_at: datetime

    @property
    def classpath(self) -> str:
        return f"{self.name}:{self.func}"


class LayerStatus(StrEnum):
    """DashScope's clients wait for SUCCESS."""

    BUILDING = "BUILDING"
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"


class Layer(_Record):
    """An environment made of a requirements text. Its code is a hash of that text, so equal ones are shared;
    `workspace_id` is of whoever may use it by this record. `log` is what the build printed."""

    workspace_id: str
    layer_code: str
    requirements: str
    status: LayerStatus
    log: str = ""
    created_at: datetime


class InstanceStatus(StrEnum):
    """`code` is the number that DashScope's clients know it by."""

    STARTING = "starting"
    ACTIVE = "active"
    FAILED = "failed"
    DELETED = "deleted"

    @property
    def code(self) -> int:
        return {"starting": 1, "active": 2}.get(self.value, -1)


class FunctionInstance(_Record):
    """A running entity with the runtime it was asked for. `runtime` holds secrets (`env`)."""

    instance_id: str
    workspace_id: str
    entity_id: str
    status: InstanceStatus
    error: str | None = None
    runtime: dict[str, Any] = Field(default_factory=dict)
    created_at: datetime
