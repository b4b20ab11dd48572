"""The JSON of `POST /fine-tunes` -> typed values, or every problem at once. Nothing is looked up here."""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from strop.config.runtime import Timeout, Weight
from strop.doors.dashscope.runtime_request import RuntimeAsked
from strop.errors import ConfigError, Problem
from strop.schema.function import FunctionType
from strop.schema.model import MODEL_NAME

SUBJECT = "job"

MAX_ITEMS = 100
"""Files, or reward functions, of one job."""

MAX_SETTINGS = 1000
_MAX_PROBLEMS = 100
"""Told at once; each is looked at for what was meant."""


def _plain(text: str) -> str:
    if not text.isprintable():
        raise ValueError(
            "control characters, or such that turn a line around; write letters, digits and signs"
        )
    return text


Shown = Annotated[str, AfterValidator(_plain)]
"""Text that lists and terminals will show."""


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class DatasetAsked(_Asked):
    """`file_name` is the path on the client's machine, as it typed it; only `file_id` counts."""

    type: Literal["training", "validation", "testing"] | None = None
    data_source_type: Literal["file_id", "download_url", "oss_mount"] = "file_id"
    file_name: str | None = None
    file_id: str | None = None
    download_url: str | None = None
    mount_storage: dict[str, Any] | None = None


class FunctionAsked(RuntimeAsked):
    """A function of a job: its id, its own settings, and the runtime's flattened among them."""

    rollout_id: str | None = None
    reward_id: str | None = None
    group_reward_id: str | None = None
    name: Shown | None = Field(default=None, max_length=256)
    weight: Weight | None = None
    timeout: Timeout | None = None
    reward_metric_weight: dict[str, float] | None = None
    preset: str | None = Field(default=None, min_length=1, max_length=100)
    params: dict[str, Any] | None = None

    @property
    def entity_id(self) -> str | None:
        return self.rollout_id or self.reward_id or self.group_reward_id


Datasets = Annotated[list[DatasetAsked], Field(max_length=MAX_ITEMS)]
FileIds = Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=MAX_ITEMS)]
Settings = Annotated[dict[str, Any], Field(max_length=MAX_SETTINGS)]


class JobAsked(_Asked):
    """What clients send; nulls and empty collections count as absent."""

    model: str = Field(min_length=1, max_length=1024)
    training_datasets: Datasets | None = None
    validation_datasets: Datasets | None = None
    training_file_ids: FileIds | None = None
    validation_file_ids: FileIds | None = None
    rollout: FunctionAsked | None = None
    rewards: Annotated[list[FunctionAsked], Field(max_length=MAX_ITEMS)] | None = None
    hyper_parameters: Settings | None = None
    resource_config: Settings | None = None
    trackers: Annotated[list[str | Settings], Field(max_length=MAX_ITEMS)] | None = None
    diagnosis: Settings | None = None
    training_type: str | None = None
    teacher_model: str | None = None
    job_name: Shown | None = Field(default=None, min_length=1, max_length=256)
    model_name: str | None = Field(default=None, pattern=MODEL_NAME)
    tuned_model_name: str | None = Field(default=None, pattern=MODEL_NAME)
    finetuned_output: str | None = Field(default=None, pattern=MODEL_NAME)

    @property
    def output_name(self) -> str | None:
        return self.tuned_model_name or self.model_name or self.finetuned_output

    def functions(self) -> list[tuple[str, FunctionType | None, FunctionAsked]]:
        """Where each function stands, its type where the place decides it, and itself."""
        rollout = [("rollout", FunctionType.ROLLOUT, self.rollout)] if self.rollout else []
        rewards = [(f"rewards[{index}]", None, one) for index, one in enumerate(self.rewards or [])]
        return [*rollout, *rewards]


def read_job(body: object) -> JobAsked:
    """Raises:
    ConfigError: every field that is unknown, of another type or out of range.
    """
    if not isinstance(body, dict):
        raise ConfigError(SUBJECT, [Problem(place="", message="expected a JSON object")])
    try:
        return JobAsked.model_validate(_pruned(cast("dict[str, Any]", body)))
    except ValidationError as error:
        found = error.errors(include_url=False)
        problems = [_problem(detail) for detail in found[:_MAX_PROBLEMS]]
        if len(found) > _MAX_PROBLEMS:
            problems.append(Problem(place="", message=f"and {len(found) - _MAX_PROBLEMS} more problems"))
        raise ConfigError(SUBJECT, problems) from error


def dotted(path: tuple[str | int, ...]) -> str:
    """
    >>> dotted(("rewards", 0, "weight"))
    'rewards[0].weight'
    """
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def _pruned(body: dict[str, Any]) -> dict[str, Any]:
    """Clients send unset fields as null or empty; those say nothing."""
    return {key: value for key, value in body.items() if value is not None and value not in ("", [], {})}


def _problem(detail: Any) -> Problem:
    path: tuple[str | int, ...] = detail["loc"]
    place = dotted(path)
    if detail["type"] == "missing":
        return Problem(place=place, message="missing")
    if detail["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(path[-1]), _names_at(path[:-1]), n=1)
        return Problem(place=place, message="unknown", fix=f"did you mean {near[0]!r}?" if near else None)
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")
    secret = any(key in ("env", "mount_storage", "download_url", "diagnosis") for key in path)
    found = "" if secret or detail["type"] == "value_error" else f"; found {_short(detail['input'])}"
    expected = message if detail["type"] == "value_error" else f"expected {message}"
    return Problem(place=place, message=expected + found)


def _names_at(path: tuple[str | int, ...]) -> list[str]:
    model = {"rollout": FunctionAsked, "rewards": FunctionAsked}.get(str(path[0]) if path else "")
    if model is None:
        model = DatasetAsked if path else JobAsked
    return list(model.model_fields)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
