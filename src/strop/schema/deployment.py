"""A model being served: how many replicas are wanted, within which limits, and how it stands."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

PROMPT_TOKENS = "x-strop-prompt-tokens"
"""Header of a replica's answer: the length of the prompt, known before the first byte of the answer."""

TELL_USAGE = "x-strop-tell-usage"
"""Header of a call to a replica: a stream then says its usage in a comment line, asked for or not."""

USAGE_COMMENT = b": usage "
"""How that line begins; JSON follows."""


class DeploymentStatus(StrEnum):
    """DashScope's words. RUNNING while at least one replica answers."""

    PENDING = "PENDING"
    DEPLOYING = "DEPLOYING"
    RUNNING = "RUNNING"
    FAILED = "FAILED"
    DELETING = "DELETING"


ALLOWED_MOVES: dict[DeploymentStatus, frozenset[DeploymentStatus]] = {
    DeploymentStatus.PENDING: frozenset(
        {
            DeploymentStatus.DEPLOYING,
            DeploymentStatus.RUNNING,
            DeploymentStatus.FAILED,
            DeploymentStatus.DELETING,
        }
    ),
    DeploymentStatus.DEPLOYING: frozenset(
        {DeploymentStatus.RUNNING, DeploymentStatus.FAILED, DeploymentStatus.DELETING}
    ),
    DeploymentStatus.RUNNING: frozenset(
        {DeploymentStatus.DEPLOYING, DeploymentStatus.FAILED, DeploymentStatus.DELETING}
    ),
    DeploymentStatus.FAILED: frozenset(
        {DeploymentStatus.DEPLOYING, DeploymentStatus.RUNNING, DeploymentStatus.DELETING}
    ),
    DeploymentStatus.DELETING: frozenset(),
}
"""The whole life cycle: what is not listed is a conflict. A deleted deployment has no row any more."""


class Deployment(BaseModel):
    """`source` is what its replicas load, fixed when it was made: a later change of the name table does not
    change what is served.

    Units:
        capacity: replicas wanted. rpm_limit, tpm_limit: calls and tokens a minute over all replicas; None is
        without a limit.
    """

    model_config = ConfigDict(frozen=True, protected_namespaces=())

    deployed_model: str
    workspace_id: str
    model_name: str
    base_model: str
    source: str
    plan: str
    capacity: int
    rpm_limit: int | None = None
    tpm_limit: int | None = None
    status: DeploymentStatus
    error: str | None = None
    creator: str
    modifier: str
    created_at: datetime
    modified_at: datetime
