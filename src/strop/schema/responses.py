"""What clients see of jobs, files, functions, models and deployments: the JSON of the API, typed.

The server writes these fields, `strop.client` reads them. Names are DashScope's where it has one. Unknown
fields are left out, so that a client also understands a newer server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from strop.schema.finding import Evidence, Text
from strop.schema.function import FunctionType
from strop.schema.job import JobStatus


def _utc(value: object) -> object:
    """Times on the wire are UTC and mostly do not say so."""
    if not isinstance(value, str):
        return value
    when = datetime.fromisoformat(value)
    return when.replace(tzinfo=UTC) if when.tzinfo is None else when


Moment = Annotated[datetime, BeforeValidator(_utc)]


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True, protected_namespaces=(), extra="ignore")


class JobInfo(_Response):
    """A job. `message` says why a FAILED one failed; `finetuned_output` is the model's name once it
    SUCCEEDED.
    """

    job_id: str
    job_name: str
    status: JobStatus
    model: str
    base_model: str = ""
    finetuned_output: str = ""
    training_type: str = "reinforcement"
    hyper_parameters: dict[str, Any] = Field(default_factory=dict)
    training_file_ids: list[str] = Field(default_factory=list)
    validation_file_ids: list[str] = Field(default_factory=list)
    create_time: Moment
    start_time: Moment | None = None
    end_time: Moment | None = None
    creator: str = ""
    modifier: str = ""
    user_identity: str = ""
    workspace_id: str = ""
    group: str = ""
    code: str | None = None
    message: str | None = None

    @property
    def output(self) -> JobInfo:
        """Itself: scripts written for DashScope read `result.output.job_id`."""
        return self

    @property
    def status_code(self) -> int:
        """200, for the same scripts; a refusal is an exception here."""
        return 200


class EventInfo(_Response):
    """Something a person should know of a job."""

    kind: str
    message: str
    step: int | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    time: Moment


class StepMetrics(_Response):
    """What is known of a step by now; more may come for the same step."""

    step: int
    metrics: dict[str, float]


class Point(_Response):
    """One value of a curve; None where it was measured and is no number."""

    step: int
    value: float | None = None


class CheckpointInfo(_Response):
    """`validation` is mean@1 at that step, or the loss, where measured; `best`: none validated better."""

    checkpoint_id: str
    job_id: str
    step: int
    status: str
    published: bool
    model_name: str
    validation: float | None = None
    best: bool = False
    policy_version: int
    create_time: Moment


class TurnInfo(_Response):
    """One chat call of a rollout; token ids and logprobs stay with the server."""

    index: int
    messages: list[dict[str, Any]]
    response: dict[str, Any]
    finish_reason: str
    temperature: float
    num_prompt_tokens: int
    num_completion_tokens: int
    latency_s: float


class TrajectoryInfo(_Response):
    """One rollout. `turns` are there where one trajectory was asked for."""

    rollout_id: str
    attempt_id: str
    group_id: str
    sample_id: str
    step: int
    split: str
    attempts: int
    status: str
    reward: float | None = None
    reward_parts: dict[str, float] = Field(default_factory=dict)
    reward_metrics: dict[str, dict[str, float]] = Field(default_factory=dict)
    rollout_metrics: dict[str, float] = Field(default_factory=dict)
    rollout_extra: dict[str, Any] = Field(default_factory=dict)
    ground_truth: Any = None
    messages: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    num_turns: int
    num_sampled_tokens: int
    rollout_s: float = 0.0
    reward_s: float = 0.0
    error: str | None = None
    error_code: str | None = None
    turns: list[TurnInfo] = Field(default_factory=list["TurnInfo"])


class SpanInfo(_Response):
    """A timed piece of a rollout. In a tree `depth` and `offset_ms`, from the start of its trace, are there.

    Units:
        start_ms: milliseconds since 1970; duration_ms, offset_ms: milliseconds.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None = None
    name: str
    kind: str
    status: str
    message: str | None = None
    start_ms: float
    duration_ms: float
    rollout_id: str | None = None
    sample_id: str | None = None
    attempt_id: str | None = None
    preview: str = ""
    attributes: dict[str, Any] = Field(default_factory=dict)
    events: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    scope: str = ""
    service: str = ""
    depth: int = 0
    offset_ms: float = 0.0


class FindingInfo(_Response):
    """What the diagnosis found, with the words of its rule, where the server knows that rule. `ended_step` is
    absent while it holds."""

    rule: str
    severity: str
    first_step: int
    last_step: int
    ended_step: int | None = None
    title: Text | None = None
    cause: Text | None = None
    advice: Text | None = None
    summary: Text
    evidence: Evidence


class DatasetResult(_Response):
    """What an evaluation measured on one file. `mean` is mean@n, n being `n_rollouts`: over samples, of each
    one's mean over its scored rollouts; None where nothing was scored. `parts` are those of the reward
    functions.
    """

    dataset: str
    mean: float | None = None
    parts: dict[str, float] = Field(default_factory=dict)
    n_rollouts: int
    num_samples: int
    num_failed: int


class EvaluationInfo(_Response):
    """A model being measured. `mean` is that of the datasets' means, once all are there; `message` says why a
    FAILED one failed.
    """

    evaluation_id: str
    name: str
    status: JobStatus
    model: str
    n_rollouts: int
    temperature: float
    datasets: list[str] = Field(default_factory=list)
    results: list[DatasetResult] = Field(default_factory=list["DatasetResult"])
    mean: float | None = None
    create_time: Moment
    start_time: Moment | None = None
    end_time: Moment | None = None
    creator: str = ""
    workspace_id: str = ""
    code: str | None = None
    message: str | None = None


class FileInfo(_Response):
    """An uploaded file. `size` in bytes."""

    file_id: str
    id: str = ""
    name: str
    description: str = ""
    purpose: str = "fine-tune"
    size: int
    md5: str
    sha256: str
    gmt_create: Moment


class InstanceInfo(_Response):
    """A running function. `status` is DashScope's number (2: it serves), `state` the word for it.

    Address, token and `load` (workers, queue, latencies, errors by type) are there where one instance was
    asked for; the token is secret.
    """

    instance_id: str
    entity_id: str
    status: int
    state: str
    error: str | None = None
    runtime: dict[str, Any] = Field(default_factory=dict)
    create_time: Moment
    trigger_url: str | None = None
    trigger_token: str | None = Field(default=None, repr=False)
    not_honoured: list[str] = Field(default_factory=list)
    load: dict[str, Any] | None = None


class FunctionInfo(_Response):
    """A registered function: class `func` in file `name` of a bundle."""

    entity_id: str
    type: FunctionType
    name: str
    func: str
    classpath: str
    bundle_sha256: str
    create_time: Moment
    instances: list[InstanceInfo] = Field(default_factory=list["InstanceInfo"])


class ModelInfo(_Response):
    """A name that jobs and deployments may use; `lineage` where training published it."""

    model_name: str
    model_source: str
    base_model: str
    gmt_create: Moment
    lineage: dict[str, Any] | None = None


class DeploymentInfo(_Response):
    """A model being served. `capacity` replicas are wanted, `ready_capacity` answer."""

    deployed_model: str
    status: str
    model_name: str
    base_model: str
    base_capacity: int = 1
    capacity: int
    ready_capacity: int
    plan: str = ""
    rpm_limit: int | None = None
    tpm_limit: int | None = None
    error_message: str | None = None
    message: str | None = None
    workspace_id: str = ""
    charge_type: str = ""
    creator: str = ""
    modifier: str = ""
    gmt_create: Moment
    gmt_modified: Moment


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[Item]):
    """One page of a list that has `total` items."""

    items: tuple[Item, ...]
    total: int
    page_no: int
    page_size: int

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class Saved(_Response):
    """A checkpoint is whole on the server's disk."""

    step: int
    folder: str
    validation: float | None = None
    best: bool = False
    published: bool = False
    policy_version: int


class PhaseProgress(_Response):
    """How far a phase of a step is."""

    step: int
    phase: str
    done: int
    total: int


StreamItem = JobInfo | EventInfo | StepMetrics | Saved | PhaseProgress
"""What a job's stream says: a new status, an event, metrics of a step; where asked for, checkpoints and how
far each phase is."""


def stream_item(value: dict[str, Any]) -> StreamItem | None:
    """None for a kind that a newer server has and this client does not know."""
    match value.get("type"):
        case "status":
            return JobInfo.model_validate(value)
        case "event":
            return EventInfo.model_validate(value)
        case "metrics":
            metrics = cast("dict[str, object]", value.get("metrics") or {})
            numbers = {name: one for name, one in metrics.items() if isinstance(one, int | float)}
            return StepMetrics.model_validate({"step": value.get("step"), "metrics": numbers})
        case "checkpoint":
            return Saved.model_validate(value)
        case "progress":
            return PhaseProgress.model_validate(value)
        case _:
            return None


def without_nulls(value: Any) -> Any:
    """Leave out every null in a dict: clients fail on a null list. NaN, which JSON lacks, is left out too.

    >>> without_nulls({"a": None, "b": [{"c": None, "d": 1}]})
    {'b': [{'d': 1}]}
    """
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {str(key): without_nulls(item) for key, item in pairs if not _absent(item)}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [without_nulls(item) for item in cast("Sequence[Any]", value)]
    return value


def _absent(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))
