"""What every section of a job file is made of, and how its keys contradict each other."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError

SMALLEST = 1e-30
"""A number that is nearer to 0, and not 0, is lost where float32 multiplies it: it would do nothing."""


class Section(BaseModel):
    """Keys and values that are refused where they are unknown, and never change. Numbers are finite."""

    model_config = ConfigDict(
        extra="forbid",
        protected_namespaces=(),
        populate_by_name=True,
        frozen=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,  # some of it is secret
    )

    @field_validator("*", mode="after")
    @classmethod
    def _not_lost(cls, value: Any) -> Any:
        if isinstance(value, float) and 0 < abs(value) < SMALLEST:
            raise PydanticCustomError("too_near_zero", "too close to 0 to make a difference")
        return value


class Contradiction(ValueError):
    """Keys that cannot all hold. The text may begin with `key: `; else the keys that it names are meant."""

    def __init__(self, text: str, *, fix: str | None = None) -> None:
        super().__init__(text)
        self.fix = fix or ("remove it" if "has no effect" in text else "change or remove it")
