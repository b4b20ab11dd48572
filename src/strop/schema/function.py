"""Wire -> typed values: what rollout, reward and group-reward functions take and give.

Field names, defaults and the treatment of unknown keys are those of DashScope's agentic-RL data models, so
that a function written for that service runs unchanged: top-level classes keep unknown keys, nested ones drop
them. Where we differ we are stricter: a reward must be a finite number.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, StringConstraints


class FunctionType(StrEnum):
    ROLLOUT = "rollout"
    REWARD = "reward"
    GROUP_REWARD = "group_reward"


class TaskStatus(StrEnum):
    """SUCCESS with a reward of 0 is a wrong answer; FAILED is no answer: retried, then dropped."""

    SUCCESS = "success"
    FAILED = "failed"


DISCARD = "discard"
"""The `error_code` of a FAILED that is not tried again: nothing would come of it; the rollout is dropped."""
ENDS_JOB = "ends_job"
"""The `error_code` of a FAILED that, when the last attempt gives it, too, ends the job with its error."""


def _finite(value: object) -> object:
    """Refuse what is no finite number; bool is an int in Python but no reward."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"expected a number, found {type(value).__name__} {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"expected a finite number, found {value!r}")
    return value


FiniteFloat = Annotated[float, BeforeValidator(_finite)]
"""A float that is neither NaN nor infinite and was not made from a string or a bool."""

MAX_REWARD = 1e15
"""What a reward may be, above or below 0: its square, summed over all tokens of a batch, stays far within
float32, in which losses and the norms of gradients are computed.
"""


def _code(value: object) -> object:
    """Functions written for DashScope may set a number; codes name metrics, so they stay one short line."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return " ".join(text.split())[:64] or None if isinstance(text, str) else text


ErrorCode = Annotated[str | None, BeforeValidator(_code)]

MetricName = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]{1,128}$")]
"""One line of 1 to 128 characters."""


class _Nested(BaseModel):
    model_config = ConfigDict(extra="ignore", protected_namespaces=())


class _TopLevel(BaseModel):
    model_config = ConfigDict(extra="allow", protected_namespaces=())


class RequestMetadata(_Nested):
    """Which attempt at which rollout of which sample this call is."""

    job_id: str
    sample_id: str
    rollout_id: str
    attempt_id: str


class ModelResource(_Nested):
    """Where the policy in training answers: an OpenAI-compatible endpoint of this one attempt."""

    model_name: str
    base_url: str
    api_key: SecretStr


class AgentOutput(_Nested):
    messages: list[dict[str, Any]] | None = None
    rollout_extra: dict[str, Any] | None = None
    rollout_metrics: dict[MetricName, FiniteFloat] | None = Field(default_factory=dict)
    reward_score: FiniteFloat | None = None


class Reward(_Nested):
    reward_score: FiniteFloat
    reward_metrics: dict[MetricName, FiniteFloat] | None = None


class GroupReward(_Nested):
    rewards: list[Reward]


class RolloutInput(_TopLevel):
    func_type: FunctionType = FunctionType.ROLLOUT
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    ground_truth: Any = None
    rollout_extra: dict[str, Any] | None = None
    sampling_params: dict[str, Any] | None = None
    model_resource: ModelResource
    request_metadata: RequestMetadata | None = None


class RewardInput(_TopLevel):
    func_type: FunctionType = FunctionType.REWARD
    ground_truth: Any = None
    request_metadata: RequestMetadata | None = None
    agent_output: AgentOutput


class GroupRewardInput(_TopLevel):
    func_type: FunctionType = FunctionType.GROUP_REWARD
    agent_outputs: list[AgentOutput]
    request_metadata: RequestMetadata | None = None
    ground_truth: Any = None


class RolloutOutput(_TopLevel):
    agent_output: AgentOutput | None = None
    status: TaskStatus = TaskStatus.SUCCESS
    error: str | None = None
    error_code: ErrorCode = None


class RewardOutput(_TopLevel):
    reward: Reward
    status: TaskStatus = TaskStatus.SUCCESS
    error: str | None = None
    error_code: ErrorCode = None


class GroupRewardOutput(_TopLevel):
    reward: GroupReward
    status: TaskStatus = TaskStatus.SUCCESS
    error: str | None = None


FunctionInput = RolloutInput | RewardInput | GroupRewardInput
FunctionOutput = RolloutOutput | RewardOutput | GroupRewardOutput

INPUT_OF: dict[FunctionType, type[FunctionInput]] = {
    FunctionType.ROLLOUT: RolloutInput,
    FunctionType.REWARD: RewardInput,
    FunctionType.GROUP_REWARD: GroupRewardInput,
}
OUTPUT_OF: dict[FunctionType, type[FunctionOutput]] = {
    FunctionType.ROLLOUT: RolloutOutput,
    FunctionType.REWARD: RewardOutput,
    FunctionType.GROUP_REWARD: GroupRewardOutput,
}
