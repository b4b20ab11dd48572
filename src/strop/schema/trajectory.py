"""What happened when agents met samples: turns, trajectories, groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from strop.schema.function import TaskStatus
from strop.schema.sample import Sample
from strop.schema.sampling import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One chat call inside a rollout, as the engine saw it.

    Shapes:
        prompt_ids: (P,). completion_ids, behaviour_logprobs, policy_versions: (T,).
    Units:
        behaviour_logprobs in nats, of the distribution sampled from; latency_s in seconds.
    """

    index: int
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    behaviour_logprobs: tuple[float, ...]
    policy_versions: tuple[int, ...]
    temperature: float
    finish_reason: FinishReason
    messages: tuple[dict[str, Any], ...]
    response: dict[str, Any]
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """A try that another one followed: its error stays readable, whatever came of the rollout."""

    attempt_id: str
    error: str
    error_code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The record of one rollout. A failed one keeps its error and has no reward.

    `attempts` counts the tries that were needed, the last one included; `failed_attempts` holds those before
    it. `reward_parts` holds each reward function's own score by its name; `reward` is their weighted sum plus
    `overlong_penalty`, which is 0 or below. Latencies in seconds. `reward_calls` counts the calls of reward
    functions that were needed; it is measured, and not kept.
    """

    rollout_id: str
    attempt_id: str
    group_id: str
    sample_id: str
    attempts: int
    status: TaskStatus
    turns: tuple[Turn, ...] = ()
    messages: tuple[dict[str, Any], ...] = ()
    rollout_extra: dict[str, Any] = field(default_factory=dict[str, Any])
    rollout_metrics: dict[str, float] = field(default_factory=dict[str, float])
    preset_reward: float | None = None
    reward: float | None = None
    overlong_penalty: float = 0.0
    reward_parts: dict[str, float] = field(default_factory=dict[str, float])
    reward_metrics: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    error: str | None = None
    error_code: str | None = None
    failed_attempts: tuple[FailedAttempt, ...] = ()
    rollout_s: float = 0.0
    reward_s: float = 0.0
    reward_calls: int = 0

    @property
    def score(self) -> float | None:
        """The reward as the functions gave it, before anything was taken off for length."""
        return None if self.reward is None else self.reward - self.overlong_penalty

    @property
    def truncated(self) -> bool:
        """Whether the engine cut an answer off, by its own word."""
        return any(turn.finish_reason is FinishReason.LENGTH for turn in self.turns)

    @property
    def num_sampled_tokens(self) -> int:
        return sum(len(turn.completion_ids) for turn in self.turns)

    @property
    def answered(self) -> bool:
        """Whether it succeeded with at least one sampled token, scored or not."""
        return self.status is TaskStatus.SUCCESS and self.num_sampled_tokens > 0

    @property
    def scored(self) -> bool:
        """Whether it counts in its group: it succeeded, has a reward and at least one sampled token."""
        return self.answered and self.reward is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The rollouts of one sample in one step. Its identity is `group_id`, never the prompt's text."""

    group_id: str
    sample: Sample
    trajectories: tuple[Trajectory, ...]

    @property
    def survivors(self) -> tuple[Trajectory, ...]:
        return tuple(trajectory for trajectory in self.trajectories if trajectory.scored)

    @property
    def answered(self) -> tuple[Trajectory, ...]:
        """The survivors, and those that nothing scored."""
        return tuple(trajectory for trajectory in self.trajectories if trajectory.answered)
