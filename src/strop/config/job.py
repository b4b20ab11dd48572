"""YAML or SDK call -> a job that means what it says; the unknown and out of range is refused by field path.

The names are those of Bailian's training configuration and the `dashscope` tuning model; `config.loading`
reads the file and reports every problem with its line. Nothing here touches a disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AliasChoices, Field, PrivateAttr, model_validator

from strop.config.hyper_parameters import DpoLoss as DpoLoss
from strop.config.hyper_parameters import HyperParameters as HyperParameters
from strop.config.hyper_parameters import KlKind as KlKind
from strop.config.hyper_parameters import OneOf as OneOf
from strop.config.hyper_parameters import SaveStrategy as SaveStrategy
from strop.config.hyper_parameters import Scheduler as Scheduler
from strop.config.hyper_parameters import TruncationPolicy as TruncationPolicy
from strop.config.runtime import FunctionRuntime as FunctionRuntime
from strop.config.runtime import Timeout, Weight
from strop.schema.function import FunctionType
from strop.schema.model import MODEL_NAME
from strop.schema.section import Contradiction, Section
from strop.schema.training import TrainingType as TrainingType
from strop.schema.watching import DiagnosisConfig, TrackerConfig


class DataSource(StrEnum):
    FILE_ID = "file_id"


class DatasetConfig(Section):
    """A file of rows: training, or validation. There may be several of each; they are read as one.
    `file_name` is relative to the configuration file.
    """

    type: Literal["training", "validation"] = "training"
    data_source_type: DataSource = DataSource.FILE_ID
    file_name: str = Field(min_length=1)


class FunctionModel(Section):
    """Where a function's code is: `pkg.mod.Class` or `path/file.py:Class`, below `zipdir`."""

    classpath: str = Field(min_length=1)
    zipdir: str = "."


PRESET_CODE = {"classpath": "strop.functions.preset_reward.PresetReward"}
"""What runs a preset reward, in a worker as user code runs."""


class FunctionConfig(Section):
    """A rollout, reward or group-reward function. `timeout` in seconds a call; `weight` scales a reward.

    Either code of the user's (`fcmodel`) or one of Strop's rewards by its name (`preset`), set by `params`.
    `reward_metric_weight` weighs the parts of a decorated reward, or the metrics of another one.
    """

    type: FunctionType
    name: str = Field(default="", max_length=256)
    timeout: Timeout = 600.0
    weight: Weight = 1.0
    reward_metric_weight: dict[str, Weight] = Field(default_factory=dict[str, float])
    preset: str | None = None
    params: dict[str, Any] = Field(default_factory=dict[str, Any])
    fcmodel: FunctionModel
    runtime: FunctionRuntime = FunctionRuntime()

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, data: Any) -> Any:
        values = cast("dict[str, Any]", data)
        if not isinstance(data, dict) or not values.get("preset"):
            return values
        code: Any = values.get("fcmodel")
        if code is not None:
            read = cast("dict[str, Any]", code if isinstance(code, dict) else vars(code))
            if read.get("classpath") == PRESET_CODE["classpath"]:  # read again as it was stored
                return values
            raise Contradiction("preset: stands beside fcmodel", fix="keep one: a preset is its own code")
        return {"type": FunctionType.REWARD, **values, "fcmodel": PRESET_CODE}

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.type is FunctionType.ROLLOUT:
            for key in ("weight", "reward_metric_weight"):
                if key in self.model_fields_set:
                    raise Contradiction(f"{key}: has no effect on a rollout function; it scales rewards")
        if self.preset is None and self.params:
            raise Contradiction("params: are for a preset, which is missing", fix="name one: preset: math")
        if self.preset is not None and self.type is not FunctionType.REWARD:
            raise Contradiction("type: a preset is of type reward", fix="remove type")
        if self.reward_metric_weight and not any(self.reward_metric_weight.values()):
            raise Contradiction("reward_metric_weight: every weight is 0", fix="raise at least one")
        return self

    @property
    def label(self) -> str:
        """Its name in metrics and logs: `name`, else the preset's or the class's own."""
        return self.name or self.preset or self.fcmodel.classpath.replace(":", ".").rsplit(".", 1)[-1]


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

    name: str = Field(
        default="strop", min_length=1, max_length=256, validation_alias=AliasChoices("name", "job_name")
    )
    model: Annotated[FoundationModel, Field()]
    mode: TrainingType | None = None
    workspace_dir: str = "."
    tuned_model_name: str | None = Field(default=None, pattern=MODEL_NAME)
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
        kinds = [function.type for function in self.functions]
        if (found := kinds.count(FunctionType.ROLLOUT)) > 1:
            text = f"functions: at most one of type rollout, found {found}"
            raise Contradiction(text, fix="keep one of them")
        labels = [function.label for function in self.functions]
        for label in labels:
            if labels.count(label) > 1:
                text = f"functions: the name {label!r} stands twice"
                raise Contradiction(text, fix="give each its own name")
            if (longer := next((one for one in labels if one.startswith(f"{label}/")), None)) is not None:
                text = f"functions: metrics of {label!r} and {longer!r} would share names"
                raise Contradiction(text, fix="no name may be another's with a slash behind; rename one")
        if not any(dataset.type == "training" for dataset in self.datasets):
            raise Contradiction("datasets: none of type training", fix="add one")
        files = [dataset.file_name for dataset in self.datasets]
        for name in files:
            if files.count(name) > 1:
                raise Contradiction(f"datasets: the file {name!r} stands twice", fix="keep one of them")
        trackers = [tracker.type.value for tracker in self.trackers]
        for name in trackers:
            if trackers.count(name) > 1:
                raise Contradiction(f"trackers: {name!r} stands twice", fix="keep one of them")
        return self

    @property
    def origins(self) -> dict[str, str]:
        """Where each value came from, by dotted key; empty for a job that was not read from a file."""
        return dict(self._origins)

    def with_origins(self, origins: Mapping[str, str]) -> Self:
        """The same job, knowing where its values came from."""
        told = self.model_copy()
        told._origins = {**self._origins, **origins}
        return told

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
