"""YAML or SDK call -> a job that means what it says; the unknown and out of range is refused by field path.

The names are those of Bailian's training configuration and the `dashscope` tuning model; `config.loading`
reads the file and reports every problem with its line. Nothing here touches a disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, model_validator

from strop.config.function import FunctionConfig as FunctionConfig
from strop.config.function import FunctionModel as FunctionModel
from strop.config.function import FunctionRuntime as FunctionRuntime
from strop.config.function import clashes
from strop.config.hyper_parameters import DpoLoss as DpoLoss
from strop.config.hyper_parameters import HyperParameters as HyperParameters
from strop.config.hyper_parameters import KlKind as KlKind
from strop.config.hyper_parameters import OneOf as OneOf
from strop.config.hyper_parameters import SaveStrategy as SaveStrategy
from strop.config.hyper_parameters import Scheduler as Scheduler
from strop.config.hyper_parameters import TruncationPolicy as TruncationPolicy
from strop.schema.function import FunctionType
from strop.schema.model import MODEL_NAME
from strop.schema.section import Contradiction, Section
from strop.schema.training import TrainingType as TrainingType
from strop.schema.watching import DiagnosisConfig, TrackerConfig

JobName = Annotated[str, Field(min_length=1, max_length=256)]
ModelName = Annotated[str, Field(pattern=MODEL_NAME)]
"""Of the model that a job makes."""


class DataSourceType(StrEnum):
    """Where a client says that rows are. Only files are read: nothing is fetched or mounted."""

    FILE_ID = "file_id"
    DOWNLOAD_URL = "download_url"
    OSS_MOUNT = "oss_mount"


class DatasetRequest(BaseModel):
    """A file of rows as a client says it: uploaded (`file_id`), or on the client's machine (`file_name`)."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    data_source_type: DataSourceType = DataSourceType.FILE_ID
    file_name: str | None = None
    file_id: str | None = None


class DatasetConfig(Section):
    """A file of rows: training, or validation. There may be several of each; they are read as one.
    `file_name` is relative to the configuration file.
    """

    type: Literal["training", "validation"] = "training"
    data_source_type: Literal["file_id"] = "file_id"
    file_name: str = Field(min_length=1)


class Resources(Section):
    """Cloud billing units. Accepted so that a Bailian file runs as it is; on one machine they choose nothing,
    and the run says so in an event."""

    charge_type: str | None = None
    mtu_spec_code: str | None = None
    mtu_capacity: int | None = Field(default=None, ge=1, le=1_000_000)


class Training(Section):
    """How the model is trained. `teacher_model` is named as `model` is; for `pg_opd` alone."""

    type: TrainingType | None = None
    teacher_model: str | None = Field(default=None, min_length=1)
    hyper_parameters: HyperParameters = HyperParameters()
    resources: Resources = Resources()


class FoundationModel(Section):
    name: str = Field(min_length=1)


class JobConfig(Section):
    """One training job, as written in `job.yaml`. `model` is a folder, a hub id or `smollm2-135m`.

    What is trained stands in `training.type` or `mode`, whichever is given; `training_type` says it.
    """

    name: JobName = Field(default="strop", validation_alias=AliasChoices("name", "job_name"))
    model: Annotated[FoundationModel, Field()]
    mode: TrainingType | None = None
    workspace_dir: str = "."
    tuned_model_name: ModelName | None = None
    datasets: tuple[DatasetConfig, ...] = Field(min_length=1)
    functions: tuple[FunctionConfig, ...] = ()
    training: Training = Training()
    trackers: tuple[TrackerConfig, ...] = ()
    diagnosis: DiagnosisConfig = DiagnosisConfig()
    _origins: dict[str, str] = PrivateAttr(default_factory=dict[str, str])

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        values = cast("dict[str, Any]", data)
        short: dict[str, Any] = {}
        if isinstance(model := values.get("model"), str):
            short["model"] = {"name": model}
        if isinstance(trackers := values.get("trackers"), list):
            items = cast("list[Any]", trackers)
            short["trackers"] = [{"type": item} if isinstance(item, str) else item for item in items]
        return {**values, **short}

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.mode and self.training.type and self.mode is not self.training.type:
            text = f"mode: {self.mode.value} contradicts training.type {self.training.type.value}"
            raise Contradiction(text, fix="keep one of them")
        for clash in clashes([(function.type, function.label) for function in self.functions]):
            raise clash
        if not any(dataset.type == "training" for dataset in self.datasets):
            raise Contradiction("datasets: there is no dataset of type training", fix="add one")
        files = [dataset.file_name for dataset in self.datasets]
        for name in files:
            if files.count(name) > 1:
                raise Contradiction(f"datasets: the file {name!r} is listed twice", fix="keep one of them")
        trackers = [tracker.type.value for tracker in self.trackers]
        for name in trackers:
            if trackers.count(name) > 1:
                raise Contradiction(f"trackers: {name!r} is listed twice", fix="keep one of them")
        return self

    @property
    def origins(self) -> dict[str, str]:
        """Where each value came from, by dotted key; empty for a job that was not read from a file."""
        return dict(self._origins)

    def with_origins(self, origins: Mapping[str, str]) -> Self:
        """The same job, knowing where its values came from."""
        copy = self.model_copy()
        copy._origins = {**self._origins, **origins}
        return copy

    @property
    def hyper_parameters(self) -> HyperParameters:
        return self.training.hyper_parameters

    @property
    def training_type(self) -> TrainingType:
        return self.training.type or self.mode or TrainingType.REINFORCEMENT

    @property
    def distils(self) -> bool:
        """Whether a teacher judges the tokens, and rewards are only measured."""
        return self.training_type is TrainingType.PG_OPD

    def functions_of(self, kind: FunctionType) -> tuple[FunctionConfig, ...]:
        return tuple(function for function in self.functions if function.type is kind)
