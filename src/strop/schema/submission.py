"""What a server remembers of a job that it runs: how to start its trainer again, and how that went so far."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Wanted(StrEnum):
    """What the job's owner wants of its trainer; the trainer looks at it between phases."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"


class LocalRun(BaseModel):
    """What `strop run` was asked to train in its own process: a job file of this machine.

    `overrides` and `given_by` are those of `config.loading.load_job`; `out` is the folder
    for its checkpoints, `resume` the checkpoint to go on from, with `accept_changes` also where functions or
    validation rows are other ones since.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    job_file: Path
    overrides: dict[str, Any] = Field(default_factory=dict)
    given_by: dict[str, str] = Field(default_factory=dict)
    out: Path | None = None
    resume: Path | None = None
    accept_changes: bool = False


class Evaluation(BaseModel):
    """How a model is measured: every row of every dataset `n_rollouts` times. `datasets` are their names, in
    the order of the configuration's.
    """

    model_config = ConfigDict(frozen=True)

    n_rollouts: int = 1
    temperature: float = 0.0
    datasets: list[str] = Field(default_factory=list)


EVALUATED_EVENT = "evaluated"
"""What came of one dataset of an evaluation, as the event's data."""


class Submission(BaseModel):
    """`request` is the client's JSON, `config` the checked `JobConfig`; both hold the values of `runtime.env`
    and are secret. `bundles` and `layers` are by function label, `files` are (type, file id, name): what the
    trainer has to lay out before `config` is true.

    `deaths` counts trainers in a row that ended without a word and without a new checkpoint; `reached` is the
    newest checkpoint's step when the last of them had ended.

    `owner` is the `strop run` that trains the job in its own process, as `processes.mark` writes it: the job
    ends with it, and no server looks after it. Then `request` is a `LocalRun`.
    """

    model_config = ConfigDict(frozen=True)

    job_id: str
    creator: str
    request: dict[str, Any] = Field(default_factory=dict)
    config: dict[str, Any] = Field(default_factory=dict)
    bundles: dict[str, str] = Field(default_factory=dict)
    layers: dict[str, str] = Field(default_factory=dict)
    files: list[tuple[str, str, str]] = Field(default_factory=list[tuple[str, str, str]])
    wanted: Wanted = Wanted.RUN
    wanted_at: datetime | None = None
    deaths: int = 0
    reached: int = 0
    owner: str | None = None

    @property
    def evaluation(self) -> Evaluation | None:
        """What was asked for where the job only measures."""
        asked = self.request.get("evaluation") if self.owner is None else None
        return Evaluation.model_validate(asked) if asked is not None else None

    @property
    def local(self) -> LocalRun | None:
        """What was asked for by a `strop run`."""
        return LocalRun.model_validate(self.request) if self.owner is not None else None
