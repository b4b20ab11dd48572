"""What the store remembers of a job besides its trajectories."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from strop.locales import Message, kept, msg, rendered
from strop.schema.access import DEFAULT_WORKSPACE
from strop.schema.training import TrainingType


class JobStatus(StrEnum):
    PENDING = "PENDING"
    QUEUING = "QUEUING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    CANCELING = "CANCELING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def final(self) -> bool:
        return not ALLOWED_MOVES[self]


class JobKind(StrEnum):
    """What a job is for: to train a model, or only to measure one."""

    TRAINING = "training"
    EVALUATION = "evaluation"


ALLOWED_MOVES: dict[JobStatus, frozenset[JobStatus]] = {
    JobStatus.PENDING: frozenset(
        {
            JobStatus.QUEUING,
            JobStatus.RUNNING,
            JobStatus.SUSPENDED,
            JobStatus.CANCELED,
            JobStatus.FAILED,
        }
    ),
    JobStatus.QUEUING: frozenset(
        {JobStatus.RUNNING, JobStatus.SUSPENDED, JobStatus.CANCELED, JobStatus.FAILED}
    ),
    JobStatus.RUNNING: frozenset(
        {
            JobStatus.QUEUING,
            JobStatus.SUSPENDED,
            JobStatus.CANCELING,
            JobStatus.SUCCEEDED,
            JobStatus.FAILED,
            JobStatus.CANCELED,
        }
    ),
    JobStatus.SUSPENDED: frozenset({JobStatus.QUEUING, JobStatus.CANCELED, JobStatus.FAILED}),
    JobStatus.CANCELING: frozenset({JobStatus.CANCELED, JobStatus.SUCCEEDED, JobStatus.FAILED}),
    JobStatus.SUCCEEDED: frozenset(),
    JobStatus.FAILED: frozenset(),
    JobStatus.CANCELED: frozenset(),
}
"""The whole life cycle: what is not listed is a conflict. RUNNING goes back to QUEUING when its trainer died
and waits to be started again."""


PLANNED_EVENT = "planned"
"""Kind of the event in which a trainer says of how many steps its job is: `{"total_steps": n}`."""

TARGET_REACHED_EVENT = "target_reached"
"""Kind of the event of a run that ended before its last step, because validation was good enough:
`{"target": x, "validation": y, "count": n, "of": steps}`."""


PREPARING_EVENT = "preparing"
"""Kind of the event in which a trainer says what takes a while before its job's first step."""

PHASE_WORDS = {
    "rollout": msg("sampling"),
    "reward": msg("scoring"),
    "validation": msg("validating"),
    "update": msg("updating"),
    "reference": msg("asking the reference"),
}
"""What people call the phases of `Progress`."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, protected_namespaces=())


class Job(_Record):
    """`config` is the resolved configuration without secrets (`runtime.env` values are masked); under
    `origins` it says of each value where it came from."""

    job_id: str
    name: str
    status: JobStatus
    model: str
    kind: JobKind = JobKind.TRAINING
    workspace_id: str = DEFAULT_WORKSPACE
    config: dict[str, Any] = Field(default_factory=dict)
    error: str | None = None
    error_said: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    host: str | None = None
    pid: int | None = None
    process_started: str | None = None
    resumes: str | None = None

    @property
    def training_type(self) -> TrainingType:
        return TrainingType(self.config.get("training", {}).get("type") or TrainingType.REINFORCEMENT)

    def error_in(self, language: str) -> str | None:
        """Why it failed, in Chinese where that is asked for and known."""
        return None if self.error is None else rendered(kept(self.error, self.error_said), language)


class Checkpoint(_Record):
    """A folder on disk that has passed its manifest. `validation` is what was measured at that step: mean@1,
    or the loss. `best`: none of its job validated better. `removed_at`: since when the folder is gone."""

    checkpoint_id: str
    job_id: str
    step: int
    folder: Path
    policy_version: int
    validation: float | None = None
    published: bool = False
    best: bool = False
    created_at: datetime
    removed_at: datetime | None = None


class Event(_Record):
    """Something a person should know: a kind in snake_case, a sentence, data for machines.

    `said` is the sentence with its parameters, from which it is made in any language; see `locales.kept`.
    """

    job_id: str
    kind: str
    message: str
    said: str | None = None
    step: int | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    created_at: datetime

    @model_validator(mode="before")
    @classmethod
    def _with_its_parameters(cls, values: Any) -> Any:
        given = cast("dict[str, Any]", values)
        message = given.get("message")
        if not isinstance(message, Message):
            return given
        return {**given, "message": str(message), "said": message.as_json()}

    def message_in(self, language: str) -> str:
        """The sentence in a language, where that is known."""
        return rendered(kept(self.message, self.said), language)


class Progress(_Record):
    """How far a phase (`rollout`, `reward`, `validation`, `update` ...) of a step is."""

    job_id: str
    step: int
    phase: str
    done: int
    total: int


class LogLine(_Record):
    """One line of output. `component` is `trainer`, `engine` or `function:<name>`."""

    job_id: str
    component: str
    stream: str
    text: str
    created_at: datetime
