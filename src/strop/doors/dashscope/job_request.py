"""The JSON of `POST /fine-tunes` -> typed values, or every problem at once. Nothing is looked up here."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from strop.config.explain import problems_of
from strop.config.file import KeyPath, dotted
from strop.config.function import FunctionName, FunctionSettings
from strop.config.job import DatasetRequest, JobName, ModelName
from strop.doors.dashscope.runtime_request import InstanceRuntimeRequest
from strop.errors import ConfigError, Problem
from strop.locales import msg
from strop.schema.function import FunctionType

SUBJECT = "job"

MAX_ITEMS = 100
"""Files, or reward functions, of one job."""

MAX_SETTINGS = 1000


def _plain(text: str) -> str:
    if not text.isprintable():
        raise ValueError(
            "control characters, or characters that change the direction of text; "
            "write letters, digits and punctuation"
        )
    return text


PlainText = Annotated[str, AfterValidator(_plain)]
"""Text that lists and terminals will show."""


class UploadedDataset(DatasetRequest):
    """`file_name` is the path on the client's machine, as it typed it; only `file_id` counts."""

    type: Literal["training", "validation", "testing"] | None = None
    download_url: str | None = None
    mount_storage: dict[str, Any] | None = None


class JobFunctionRequest(FunctionSettings, InstanceRuntimeRequest):
    """A function of a job: its id, its own settings, and the runtime's flattened among them."""

    rollout_id: str | None = None
    reward_id: str | None = None
    group_reward_id: str | None = None
    name: Annotated[FunctionName, AfterValidator(_plain)] | None = None

    @property
    def entity_id(self) -> str | None:
        return self.rollout_id or self.reward_id or self.group_reward_id


Datasets = Annotated[list[UploadedDataset], Field(max_length=MAX_ITEMS)]
FileIds = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=MAX_ITEMS)]
Settings = Annotated[dict[str, Any], Field(max_length=MAX_SETTINGS)]


class JobRequest(BaseModel):
    """What clients send; nulls and empty collections count as absent."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str = Field(min_length=1, max_length=1024)
    training_datasets: Datasets | None = None
    validation_datasets: Datasets | None = None
    training_file_ids: FileIds | None = None
    validation_file_ids: FileIds | None = None
    rollout: JobFunctionRequest | None = None
    rewards: Annotated[list[JobFunctionRequest], Field(max_length=MAX_ITEMS)] | None = None
    hyper_parameters: Settings | None = None
    resource_config: Settings | None = None
    trackers: Annotated[list[str | Settings], Field(max_length=MAX_ITEMS)] | None = None
    diagnosis: Settings | None = None
    training_type: str | None = None
    teacher_model: str | None = None
    job_name: Annotated[JobName, AfterValidator(_plain)] | None = None
    model_name: ModelName | None = None
    tuned_model_name: ModelName | None = None
    finetuned_output: ModelName | None = None

    @property
    def output_name(self) -> str | None:
        return self.tuned_model_name or self.model_name or self.finetuned_output

    def functions(self) -> list[tuple[str, FunctionType | None, JobFunctionRequest]]:
        """Where each function stands, its type where the place decides it, and itself."""
        rollout = [("rollout", FunctionType.ROLLOUT, self.rollout)] if self.rollout else []
        rewards = [(f"rewards[{index}]", None, one) for index, one in enumerate(self.rewards or [])]
        return [*rollout, *rewards]


def read_job(body: object) -> JobRequest:
    """Raises:
    ConfigError: every field that is unknown, of another type or out of range.
    """
    if not isinstance(body, dict):
        raise ConfigError(SUBJECT, [Problem(place="", message=msg("expected a JSON object"))])
    try:
        return JobRequest.model_validate(_pruned(cast("dict[str, Any]", body)))
    except ValidationError as error:
        raise ConfigError(SUBJECT, problems_of(error, JobRequest, problem=_problem)) from error


def _problem(path: KeyPath, message: str, fix: str | None) -> Problem:
    return Problem(place=dotted(path), message=message, fix=fix)


def _pruned(body: dict[str, Any]) -> dict[str, Any]:
    """Clients send unset fields as null or empty; those say nothing."""
    return {key: value for key, value in body.items() if value is not None and value not in ("", [], {})}
