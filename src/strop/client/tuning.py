"""What `AgenticRL` is told to train, in the source documents' classes: read from YAML or written in Python.

A superset of `job.yaml`: functions may be registered already, have cloud runtimes and requirements.
Everything that is unknown or of a wrong type is told at once, with its line where it came from a file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from strop.config.file import JobFile, dotted, read_job_file
from strop.config.overrides import apply_overrides
from strop.config.runtime import Concurrency, RuntimeSizes, Timeout, Weight
from strop.errors import ConfigError, Problem
from strop.schema.function import FunctionType
from strop.schema.model import MODEL_NAME

EnvValue = str | int | float | bool
Model = TypeVar("Model", bound="_Part")


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", protected_namespaces=(), populate_by_name=True, validate_assignment=True
    )


class DataSourceType(StrEnum):
    FILE_ID = "file_id"
    DOWNLOAD_URL = "download_url"
    OSS_MOUNT = "oss_mount"


class Dataset(_Part):
    """Rows: a file of this machine (`file_name`), or one that was uploaded (`file_id`), which is not sent
    again.
    """

    type: Literal["training", "validation"] = "training"
    data_source_type: DataSourceType = DataSourceType.FILE_ID
    file_name: str | None = None
    file_id: str | None = None

    @model_validator(mode="after")
    def _found(self) -> Self:
        if self.data_source_type is not DataSourceType.FILE_ID:
            raise ValueError(
                f"data_source_type {self.data_source_type.value!r} is not read: the server fetches nothing; "
                "give file_name, and the file is uploaded"
            )
        if not self.file_name and not self.file_id:
            raise ValueError("a dataset needs file_name or file_id")
        return self


class TrainingDataset(Dataset):
    type: Literal["training"] = "training"  # pyright: ignore[reportIncompatibleVariableOverride]


class ValidationDataset(Dataset):
    type: Literal["validation"] = "validation"  # pyright: ignore[reportIncompatibleVariableOverride]


class FunctionComponentModel(_Part):
    """Where the code is: class `classpath` (`pkg.mod.Class` or `path/file.py:Class`) below the folder
    `zipdir`.

    `requirements_path` and `extra_files` are relative to `zipdir`; a requirements file that is not there is
    none.
    """

    zipdir: str = "."
    classpath: str = ""
    filepath: str = ""
    classname: str = ""
    requirements_path: str = "requirements.txt"
    extra_files: list[str] = Field(default_factory=list)

    def target(self) -> tuple[str, str]:
        """(file below zipdir, class).

        Raises:
            ValueError: neither form names a class.

        >>> FunctionComponentModel(classpath="a.b.Score").target()
        ('a/b.py', 'Score')
        """
        if self.filepath and self.classname:
            return self.filepath, self.classname
        file, colon, name = self.classpath.rpartition(":")
        if not colon:
            module, _, name = self.classpath.rpartition(".")
            file = module.replace(".", "/")
        if not file or not name.isidentifier():
            raise ValueError(f"{self.classpath!r} names no class; write path/file.py:Class or pkg.mod.Class")
        return (file if file.endswith(".py") else f"{file}.py").removeprefix("./"), name


class FunctionComponentRuntime(RuntimeSizes, _Part):
    """How a function runs: the sizes of a job file's runtime, and what clouds have beside. `env` is secret.
    An event of the job says which of these choose nothing.
    """

    layer_code: str | None = None
    concurrency: Concurrency | None = None
    enable_vpc_config: bool | None = None
    security_group_id: str | None = None
    switch_ids: list[str] | None = None
    vpc_id: str | None = None
    vpc_role: str | None = None
    enable_log: bool | None = None
    env: dict[str, EnvValue] = Field(default_factory=dict, repr=False)

    def asked(self) -> dict[str, Any]:
        """What was set, as the wire has it."""
        return {key: value for key, value in self.model_dump().items() if value not in (None, {}, [])}


class AgenticRLFunctionComponent(_Part):
    """A function with its own runtime. With an `entity_id` it is registered already and no code is sent; a
    `preset` is the server's own.
    """

    type: FunctionType = FunctionType.ROLLOUT
    name: str | None = Field(default=None, max_length=256)
    timeout: Timeout | None = None
    weight: Weight | None = None
    reward_metric_weight: dict[str, float] | None = None
    preset: str | None = Field(default=None, min_length=1)
    params: dict[str, Any] = Field(default_factory=dict)
    fcmodel: FunctionComponentModel = Field(default_factory=FunctionComponentModel)
    runtime: FunctionComponentRuntime = Field(default_factory=FunctionComponentRuntime)
    entity_id: str | None = None
    instance_id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, data: Any) -> Any:
        """A preset is a reward, and need not say so."""
        values = cast("dict[str, Any]", data)
        is_preset = isinstance(data, dict) and bool(values.get("preset"))
        return {"type": FunctionType.REWARD, **values} if is_preset else values

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.needs_code:
            self.fcmodel.target()
        if self.type is FunctionType.ROLLOUT and self.weight is not None:
            raise ValueError("weight has no effect on a rollout function; it scales rewards")
        return self

    @property
    def needs_code(self) -> bool:
        """Whether code must be registered before a job can use it."""
        return self.entity_id is None and self.preset is None

    @property
    def label(self) -> str:
        """Its name in metrics and logs."""
        return (
            self.name or self.preset or (self.fcmodel.target()[1] if self.needs_code else str(self.entity_id))
        )


class RolloutFunctionComponent(AgenticRLFunctionComponent):
    type: Literal[FunctionType.ROLLOUT] = FunctionType.ROLLOUT  # pyright: ignore[reportIncompatibleVariableOverride]


class RewardFunctionComponent(AgenticRLFunctionComponent):
    type: Literal[FunctionType.REWARD] = FunctionType.REWARD  # pyright: ignore[reportIncompatibleVariableOverride]


class GroupRewardFunctionComponent(AgenticRLFunctionComponent):
    type: Literal[FunctionType.GROUP_REWARD] = FunctionType.GROUP_REWARD  # pyright: ignore[reportIncompatibleVariableOverride]


class TrainingSection(_Part):
    """Hyper-parameters and resources as the server knows them; it checks their names and ranges."""

    type: str | None = None
    teacher_model: str | None = None
    hyper_parameters: dict[str, Any] = Field(default_factory=dict)
    resources: dict[str, Any] = Field(default_factory=dict)


def _model_name(value: object) -> object:
    """`model: NAME` and `model: {name: NAME}` are the same."""
    if isinstance(value, Mapping) and set(cast("Mapping[str, Any]", value)) == {"name"}:
        return cast("Mapping[str, Any]", value)["name"]
    return value


class Tuning(_Part):
    """One training job. Relative paths start at `workspace_dir`, that at the file's folder or where Python
    runs.
    """

    name: str = Field(
        default="strop", min_length=1, max_length=256, validation_alias=AliasChoices("name", "job_name")
    )
    model: Annotated[str | None, BeforeValidator(_model_name)] = None
    teacher_model: str | None = None
    mode: str | None = None
    tuned_model_name: str | None = Field(default=None, pattern=MODEL_NAME)
    workspace_dir: str = "."
    datasets: list[Dataset] = Field(default_factory=list[Dataset])
    functions: list[AgenticRLFunctionComponent] = Field(default_factory=list[AgenticRLFunctionComponent])
    training: TrainingSection = Field(default_factory=TrainingSection)
    trackers: list[str | dict[str, Any]] = Field(default_factory=list)
    diagnosis: dict[str, Any] = Field(default_factory=dict, repr=False)
    observability: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for problem in contradictions(self):
            raise ValueError(problem)
        return self


def contradictions(tuning: Tuning) -> list[str]:
    """What no server would do: it would take one and drop the other."""
    kinds = [one.type for one in tuning.functions]
    labels = [one.label for one in tuning.functions]
    found: list[str] = []
    if (count := kinds.count(FunctionType.ROLLOUT)) > 1:
        found.append(f"functions: at most one of type rollout, found {count}")
    found += [
        f"functions: the name {label!r} stands twice; give each its own name"
        for label in dict.fromkeys(labels)
        if labels.count(label) > 1
    ]
    return found


def read_tuning(
    path: Path, changes: Mapping[str, Any], *, settings: Mapping[str, Any] | None = None
) -> tuple[Tuning, Path]:
    """A YAML file, with top-level keys replaced by `changes`, and keys at any depth by `settings`.

    A name in `settings` is dotted, or bare where one section alone has it; text is read as YAML reads a
    value.

    Returns:
        What it says, and the folder that its relative paths start from.
    Raises:
        ConfigError: everything that is wrong with it, each with its line.
    """
    file = read_job_file(path)
    kept = {key: value for key, value in file.data.items() if key not in _also(changes)}
    file.data = kept | dict(changes)
    apply_overrides(file, settings or {}, {}, otherwise="--set")
    tuning = checked(Tuning, file.data, file=file, subject=str(path))
    return tuning, path.resolve().parent / tuning.workspace_dir


def checked(model: type[Model], data: object, *, subject: str, file: JobFile | None = None) -> Model:
    """
    Raises:
        ConfigError: every field that is unknown or of a wrong type.
    """
    problems = list(file.problems) if file is not None else []
    try:
        made = model.model_validate(data)
    except ValidationError as error:
        problems += [
            _problem(one, model, file) for one in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigError(subject, problems) from error
    if problems:
        raise ConfigError(subject, problems)
    return made


def _also(changes: Mapping[str, Any]) -> set[str]:
    """A key and its other name."""
    return {*changes, *(("name", "job_name") if {"name", "job_name"} & set(changes) else ())}


def _problem(detail: Any, model: type[BaseModel], file: JobFile | None) -> Problem:
    path: tuple[str | int, ...] = detail["loc"]
    where = dotted(path)
    place = file.place(path) if file is not None else ""
    fix = None
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _names_at(model, path[:-1]), n=1)
        text, fix = "unknown", f"did you mean {near[0]!r}?" if near else "remove it"
    else:
        text = str(detail["msg"]).removeprefix("Value error, ")
    return Problem(place=place, message=f"{where}: {text}" if where else text, fix=fix)


def _names_at(model: type[BaseModel], path: tuple[str | int, ...]) -> list[str]:
    """Fields of the model that stands at a path."""
    names = {
        "datasets": Dataset,
        "functions": AgenticRLFunctionComponent,
        "fcmodel": FunctionComponentModel,
        "runtime": FunctionComponentRuntime,
        "training": TrainingSection,
    }
    for key in reversed(path):
        if key in names:
            return list(names[str(key)].model_fields)
    return list(model.model_fields)
