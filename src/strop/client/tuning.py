"""What `AgenticRL` is told to train, in the source documents' classes: read from YAML or written in Python.

A superset of `job.yaml`, made of the same fields: functions may be registered already, have cloud runtimes
and requirements. Whatever is unknown or of a wrong type is reported at once, with its line where it came from
a file.
"""

from __future__ import annotations

from collections.abc import Mapping
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

from strop.config.explain import problems_of
from strop.config.file import JobFile, KeyPath, dotted, read_job_file
from strop.config.function import EnvValue, FunctionSettings, RuntimeRequest, clashes
from strop.config.job import DatasetRequest, JobName, ModelName
from strop.config.job import DataSourceType as DataSourceType
from strop.config.overrides import apply_overrides
from strop.errors import ConfigError, Problem
from strop.schema.function import FunctionType
from strop.schema.section import Contradiction

Model = TypeVar("Model", bound="_Part")


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", protected_namespaces=(), populate_by_name=True, validate_assignment=True
    )


class Dataset(DatasetRequest, _Part):
    """Rows: a file of this machine (`file_name`), or one that was uploaded (`file_id`), which is not sent
    again.
    """

    type: Literal["training", "validation"] = "training"

    @model_validator(mode="after")
    def _found(self) -> Self:
        if self.data_source_type is not DataSourceType.FILE_ID:
            text = (
                f"data_source_type: {self.data_source_type.value!r} is not read: the server fetches nothing"
            )
            raise Contradiction(text, fix="give file_name, and the file is uploaded")
        if not self.file_name and not self.file_id:
            raise Contradiction("a dataset needs file_name or file_id", fix="give one of them")
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
            text = f"classpath: {self.classpath!r} names no class"
            raise Contradiction(text, fix="write path/file.py:Class or pkg.mod.Class")
        return (file if file.endswith(".py") else f"{file}.py").removeprefix("./"), name


class FunctionComponentRuntime(RuntimeRequest, _Part):
    """How a function runs: the sizes of a job file's runtime, and what clouds have beside. `env` is secret.
    An event of the job says which of these choose nothing.
    """

    env: dict[str, EnvValue] = Field(default_factory=dict, repr=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    def asked(self) -> dict[str, Any]:
        """What was set, as the wire has it."""
        return {key: value for key, value in self.model_dump().items() if value not in (None, {}, [])}


class AgenticRLFunctionComponent(FunctionSettings, _Part):
    """A function with its own runtime. With an `entity_id` it is registered already and no code is sent; a
    `preset` is the server's own.
    """

    type: FunctionType = FunctionType.ROLLOUT
    params: dict[str, Any] = Field(default_factory=dict)  # pyright: ignore[reportIncompatibleVariableOverride]
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
            raise Contradiction("weight: has no effect on a rollout function; it scales rewards")
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

    name: JobName = Field(default="strop", validation_alias=AliasChoices("name", "job_name"))
    model: Annotated[str | None, BeforeValidator(_model_name)] = None
    teacher_model: str | None = None
    mode: str | None = None
    tuned_model_name: ModelName | None = None
    workspace_dir: str = "."
    datasets: list[Dataset] = Field(default_factory=list[Dataset])
    functions: list[AgenticRLFunctionComponent] = Field(default_factory=list[AgenticRLFunctionComponent])
    training: TrainingSection = Field(default_factory=TrainingSection)
    trackers: list[str | dict[str, Any]] = Field(default_factory=list)
    diagnosis: dict[str, Any] = Field(default_factory=dict, repr=False)
    observability: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for clash in clashes([(one.type, one.label) for one in self.functions]):
            raise clash
        return self


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

        def problem(path: KeyPath, message: str, fix: str | None) -> Problem:
            where = dotted(path)
            place = file.place(path) if file is not None else ""
            return Problem(place=place, message=f"{where}: {message}" if where else message, fix=fix)

        known = cast("Mapping[str, Any]", data) if isinstance(data, Mapping) else {}
        raise ConfigError(
            subject, [*problems, *problems_of(error, model, problem=problem, data=known)]
        ) from error
    if problems:
        raise ConfigError(subject, problems)
    return made


def _also(changes: Mapping[str, Any]) -> set[str]:
    """A key and its other name."""
    return {*changes, *(("name", "job_name") if {"name", "job_name"} & set(changes) else ())}
