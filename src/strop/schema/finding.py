"""What a diagnosis says of a run: which rule, since when, and what shows it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from strop.locales import FromOldStore, Message, in_both


class Severity(StrEnum):
    WARNING = "warning"
    ALARM = "alarm"


class Text(BaseModel):
    """The same sentence in both languages: what a store keeps of a finding, and what clients get of it."""

    model_config = ConfigDict(frozen=True)

    en: str
    zh: str

    @property
    def message(self) -> Message:
        """The sentence for a message of which it is part."""
        return FromOldStore(self.en, self.zh)

    @classmethod
    def of(cls, message: str) -> Text:
        return cls(**in_both(message))


class Curve(BaseModel):
    """The stretch of a metric that shows it. `healthy` is its range for the job's algorithm, if it has
    one."""

    model_config = ConfigDict(frozen=True)

    name: str
    points: list[tuple[int, float]]
    healthy: tuple[float | None, float | None] | None = None


class Witness(BaseModel):
    """A trajectory that shows it, and what to look at in it."""

    model_config = ConfigDict(frozen=True)

    rollout_id: str
    step: int
    reward: float | None = None
    note: str = ""


class Evidence(BaseModel):
    """`numbers` are what the rule compared, by name."""

    model_config = ConfigDict(frozen=True)

    curves: list[Curve] = Field(default_factory=list[Curve])
    trajectories: list[Witness] = Field(default_factory=list[Witness])
    numbers: dict[str, float] = Field(default_factory=dict[str, float])


class Finding(BaseModel):
    """One rule that held from `first_step` to `last_step`, both inclusive; `ended_step` is the step from
    which it held no more, None while it holds. `rule` is `P1` to `P9` or a hack's name.
    """

    model_config = ConfigDict(frozen=True)

    job_id: str
    rule: str
    severity: Severity
    first_step: int
    last_step: int
    ended_step: int | None = None
    summary: Text
    evidence: Evidence
    created_at: datetime
    updated_at: datetime

    def shown(self) -> dict[str, Any]:
        return self.model_dump(mode="json")
