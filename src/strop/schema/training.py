"""What a job learns from, and so which of its checkpoints is the best.

One rule for the run that saves and removes checkpoints, for publishing, the API and the console.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Protocol, TypeVar


class TrainingType(StrEnum):
    """What a job learns from: rewards, a teacher that judges the student's own tokens, answers, preferences,
    or plain text."""

    REINFORCEMENT = "reinforcement"
    PG_OPD = "pg_opd"
    SFT = "sft"
    DPO = "dpo"
    CPT = "cpt"

    @property
    def offline(self) -> bool:
        """Whether it learns from rows alone: nothing is sampled and no function runs."""
        return self in (TrainingType.SFT, TrainingType.DPO, TrainingType.CPT)

    @property
    def lower_is_better(self) -> bool:
        """Whether validation is a loss; where answers are sampled it is their mean reward."""
        return self.offline


class Validated(Protocol):
    """A checkpoint; `validation` is None where none was measured at its step."""

    @property
    def step(self) -> int: ...

    @property
    def validation(self) -> float | None: ...


AnyCheckpoint = TypeVar("AnyCheckpoint", bound=Validated)


def best_validated(checkpoints: Iterable[AnyCheckpoint], *, lower_is_better: bool) -> AnyCheckpoint | None:
    """The checkpoint that validated best, of equals the newest; None where none was validated."""
    sign = -1.0 if lower_is_better else 1.0
    scored = [(sign * one.validation, one.step, one) for one in checkpoints if one.validation is not None]
    return max(scored, key=lambda item: item[:2])[2] if scored else None
