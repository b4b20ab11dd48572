"""Names of models: what the operator put into the table, and what training published."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"
"""What a published model may be called: it becomes a folder."""

BUNDLED = "smollm2-135m"
"""The small model that needs no hub."""

BUNDLED_NAMES = frozenset({BUNDLED, "smollm2-135m-instruct", "huggingfacetb/smollm2-135m-instruct"})
"""Its names, in lower case; nothing else may have one."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, protected_namespaces=())


class ModelKind(StrEnum):
    """REGISTERED: a name for a source elsewhere. PUBLISHED: a checkpoint's weights, never changed."""

    REGISTERED = "registered"
    PUBLISHED = "published"


class Lineage(_Record):
    """Where published weights came from.

    `data` and `code` are SHA-256 by file name and by function name as they were when the run started;
    `config` is the resolved configuration without secrets. `digest` is of the weights and all that is served
    with them; `files` has the SHA-256 of each.
    """

    job_id: str
    step: int
    checkpoint_id: str
    policy_version: int
    validation: float | None = None
    base_model: str
    data: dict[str, str] = Field(default_factory=dict)
    code: dict[str, str] = Field(default_factory=dict)
    config: dict[str, Any] = Field(default_factory=dict)
    digest: str
    files: dict[str, str] = Field(default_factory=dict)


class NamedModel(_Record):
    """One name. `source` is what is loaded: a folder, a hub id, the bundled model.

    A registered name belongs to the operator and is seen from every workspace (`workspace_id` None).
    """

    name: str
    kind: ModelKind
    source: str
    workspace_id: str | None = None
    lineage: Lineage | None = None
    created_at: datetime

    @property
    def base_model(self) -> str:
        """What a published model was trained from; a registered one is its own."""
        return self.lineage.base_model if self.lineage is not None else self.name
