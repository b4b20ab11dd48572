"""SandboxFusion's HTTP -> types: the requests and answers of every path, with its names and its defaults.

What an answer has beyond the reference (`cpu_time`, `reason`, `signal` ...) stands in fields of its own,
which its clients ignore.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, field_validator

from strop_sandbox.languages import BY_NAME, REFERENCE_NAMES


def _sayable(value: object) -> Any:
    """A value in which half a surrogate pair, which UTF-8 cannot hold, has become a question mark."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return {_sayable(key): _sayable(one) for key, one in pairs}
    if isinstance(value, list):
        return [_sayable(one) for one in cast("list[object]", value)]
    return value


EchoedText = Annotated[str | None, PlainSerializer(_sayable, return_type=str | None)]
"""Of a request: JSON's escapes can write what UTF-8 cannot."""
EchoedValues = Annotated[dict[str, Any] | None, PlainSerializer(_sayable, return_type=dict[str, Any] | None)]


class RunStatus(StrEnum):
    """`SANDBOX_ERROR` is only ever a failure of the sandbox itself: clients try again."""

    SUCCESS = "Success"
    FAILED = "Failed"
    SANDBOX_ERROR = "SandboxError"


class CommandStatus(StrEnum):
    """How one command ended."""

    FINISHED = "Finished"
    ERROR = "Error"
    TIME_LIMIT_EXCEEDED = "TimeLimitExceeded"


class RunCodeRequest(BaseModel):
    """`POST /run_code`.

    Units:
        timeouts in seconds of the program's own time; `memory_limit_MB` in MiB, -1 for the server's.
    """

    model_config = ConfigDict(extra="ignore")

    code: str
    language: str
    compile_timeout: float = Field(default=10.0, gt=0, le=3600)
    run_timeout: float = Field(default=10.0, gt=0, le=3600)
    memory_limit_MB: int = -1
    stdin: str | None = None
    files: dict[str, str | None] = Field(default_factory=dict[str, str | None])
    fetch_files: list[str] = Field(default_factory=list[str])

    @field_validator("language")
    @classmethod
    def _known(cls, name: str) -> str:
        if name in REFERENCE_NAMES:
            return name
        if name in BY_NAME:
            return BY_NAME[name].name
        raise ValueError(f"language must be one of {', '.join(REFERENCE_NAMES)}")


class CommandResult(BaseModel):
    """One command. `reason` says which limit ended it; `signal` what killed it."""

    status: CommandStatus
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None
    cpu_time: float | None = None
    memory_MB: float | None = None
    reason: Literal["", "cpu_time_limit", "wall_time_limit", "memory_limit", "process_limit"] = ""
    signal: str | None = None
    stdout_bytes: int | None = None


class RunCodeResponse(BaseModel):
    """The answer to `POST /run_code`."""

    status: RunStatus
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict[str, str])


class RunJupyterRequest(BaseModel):
    """`POST /run_jupyter`. `cell_timeout` bounds each cell where it is above 0."""

    model_config = ConfigDict(extra="ignore")

    cells: list[str] = Field(min_length=1)
    cell_timeout: float = Field(default=0, ge=0, le=3600)
    total_timeout: float = Field(default=45, gt=0, le=3600)
    memory_limit_MB: int = -1
    kernel: Literal["python3"] = "python3"
    files: dict[str, str | None] = Field(default_factory=dict[str, str | None])
    fetch_files: list[str] = Field(default_factory=list[str])


class CellResult(BaseModel):
    """What one cell gave."""

    stdout: str
    stderr: str
    display: list[dict[str, Any]]
    error: list[dict[str, Any]]


class RunJupyterResponse(BaseModel):
    """The answer to `POST /run_jupyter`."""

    status: RunStatus
    message: str = ""
    driver: CommandResult | None = None
    cells: list[CellResult] = Field(default_factory=list[CellResult])
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict[str, str])


class TestConfig(BaseModel):
    """How a completion is tested."""

    model_config = ConfigDict(extra="ignore")
    __test__ = False  # no class of tests, whatever pytest makes of the name

    dataset_type: str | None = None
    language: str | None = None
    locale: str | None = None
    is_fewshot: bool | None = None
    compile_timeout: float | None = Field(default=None, ge=0, le=3600)
    run_timeout: float | None = Field(default=None, ge=0, le=3600)
    custom_extract_logic: str | None = None
    provided_data: list[dict[str, Any]] | dict[str, Any] | None = None
    extra: dict[str, Any] = Field(default_factory=dict[str, Any])

    @field_validator("extra", mode="before")
    @classmethod
    def _nothing(cls, value: object) -> object:
        return {} if value is None else value


class _OfDataset(BaseModel):
    model_config = ConfigDict(extra="ignore")

    dataset: str = ""
    config: TestConfig = Field(default_factory=TestConfig)


class GetPromptsRequest(_OfDataset):
    """`POST /get_prompts` and `POST /list_ids`."""

    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=1_000_000, ge=0)


class GetPromptByIdRequest(_OfDataset):
    """`POST /get_prompt_by_id`."""

    id: int | str


class Prompt(BaseModel):
    """One problem as a model is asked it."""

    id: int | str
    prompt: Annotated[str, PlainSerializer(_sayable, return_type=str)]
    labels: Annotated[dict[str, Any], PlainSerializer(_sayable, return_type=dict[str, Any])] = Field(
        default_factory=dict[str, Any]
    )


class SubmitRequest(_OfDataset):
    """`POST /submit`."""

    id: int | str
    completion: str


class TestResult(BaseModel):
    """One case: what ran, and what it was measured against."""

    __test__ = False

    passed: bool
    exec_info: RunCodeResponse
    test_info: EchoedValues = None


class EvalResult(BaseModel):
    """The answer to `POST /submit`."""

    id: int | str
    accepted: bool
    extracted_code: EchoedText = None
    full_code: EchoedText = None
    test_code: EchoedText = None
    tests: list[TestResult] = Field(default_factory=list[TestResult])
    extracted_type: Literal["fenced", "incomplete_fenced", "heuristic", "empty"] | None = None
    extra: dict[str, Any] | None = None


class GetMetricsRequest(_OfDataset):
    """`POST /get_metrics`."""

    results: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
