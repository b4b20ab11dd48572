"""How a function runs -> sizes, capacities and thresholds, each with the one range that every edge knows.

The job file's section is here; the server's and the client's forms of it are made of the same `RuntimeSizes`.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from strop.schema.section import Contradiction, Section

MIN_TIMEOUT_S, MAX_TIMEOUT_S = 0.001, 86_400

Concurrency = Annotated[int, Field(ge=1, le=10_000)]
"""Calls in flight in one worker."""

Timeout = Annotated[float, Field(ge=MIN_TIMEOUT_S, le=MAX_TIMEOUT_S, allow_inf_nan=False)]
"""Seconds that one call may take."""

Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
"""What a reward, or a part of one, counts."""


class RuntimeSizes(BaseModel):
    """What one worker may use, and how many workers there are.

    Units:
        cpu: cores; memory_size, disk_size: MiB; all of one worker. The capacities count workers: at first, at
        least, at most. Above a threshold, a share of what the workers hold, another one is started.
    """

    cpu: float | None = Field(default=None, ge=0.01, le=1024, allow_inf_nan=False)
    memory_size: int | None = Field(default=None, ge=64, le=2**24)
    disk_size: int | None = Field(default=None, ge=1, le=2**28)
    capacity: int | None = Field(default=None, ge=0, le=100_000)
    min_capacity: int | None = Field(default=None, ge=0, le=100_000)
    max_capacity: int | None = Field(default=None, ge=1, le=100_000)
    memory_scale_threshold: float | None = Field(default=None, ge=0.01, le=1, allow_inf_nan=False)
    concurrency_scale_threshold: float | None = Field(default=None, ge=0.01, le=1, allow_inf_nan=False)


class FunctionRuntime(RuntimeSizes, Section):
    """How a function runs: its sizes, and `concurrency` calls in flight in one worker. `env` is extra
    environment, secret.
    """

    concurrency: Concurrency = 64
    env: dict[str, Any] = Field(default_factory=dict)

    @field_validator("env")
    @classmethod
    def _writable(cls, env: dict[str, Any]) -> dict[str, Any]:
        for name, value in env.items():
            if not name or "=" in name:
                raise Contradiction(f"{name!r} is no name of a variable", fix="letters, digits and _")
            if not isinstance(value, str | int | float):
                found = "nothing" if value is None else f"a {type(value).__name__}"
                text = f"{name} holds {found}; an environment holds text"
                raise Contradiction(text, fix="write a string, a number or a boolean")
        return env

    @property
    def capacities(self) -> tuple[int, int, int]:
        """(at least, at first, at most) workers, with what was left out filled in: one that stays one."""
        asked = 1 if self.capacity is None else self.capacity
        if self.min_capacity is not None:
            least = self.min_capacity
        else:
            least = asked if self.max_capacity is None else min(asked, 1)
        first = max(least, 1) if self.capacity is None else asked
        most = max(first, 1) if self.max_capacity is None else self.max_capacity
        return least, first, most

    @model_validator(mode="after")
    def _agree(self) -> Self:
        least, first, most = self.capacities
        if least > most:
            text = f"min_capacity: {least} is above max_capacity {most}"
            raise Contradiction(text, fix="make min_capacity the smaller one")
        if not least <= first <= most:
            text = f"capacity: {first} is not within min_capacity {least} and max_capacity {most}"
            raise Contradiction(text, fix="let capacity start between the two")
        for key in ("memory_scale_threshold", "concurrency_scale_threshold"):
            if getattr(self, key) is not None and least == most:
                text = f"{key}: has no effect, there are always {most} workers"
                raise Contradiction(text, fix="set max_capacity above min_capacity")
        if self.memory_scale_threshold is not None and self.memory_size is None:
            text = "memory_scale_threshold: has no effect without memory_size, whose share it is"
            raise Contradiction(text, fix="set memory_size")
        return self
