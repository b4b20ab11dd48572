"""DashScope's `FunctionComponentRuntime` as clients send it -> the runtime of ours that it means."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from strop.config.runtime import Concurrency, FunctionRuntime, RuntimeSizes
from strop.functions import validation_text
from strop.workers.functions import env_text
from strop.workers.size import cut

EnvValue = str | int | float | bool


class RuntimeAsked(RuntimeSizes):
    """`env` is secret. Sizes, capacities and thresholds are those of `FunctionRuntime`."""

    model_config = ConfigDict(extra="forbid")

    layer_code: str | None = Field(default=None, max_length=100)
    concurrency: Concurrency | None = None
    env: dict[str, EnvValue] | None = Field(default=None, max_length=1000)
    enable_vpc_config: bool | None = None
    security_group_id: str | None = None
    switch_ids: list[str] | None = None
    vpc_id: str | None = None
    vpc_role: str | None = None
    enable_log: bool | None = None

    @field_validator("env")
    @classmethod
    def _names(cls, env: dict[str, EnvValue] | None) -> dict[str, EnvValue] | None:
        for name in env or {}:
            if not name.isidentifier() or not name.isascii():
                raise ValueError(f"{name[:100]!r} is no name of an environment variable")
            if name.startswith("STROP_"):
                raise ValueError(f"{name[:100]!r} cannot be set: STROP_ is for Strop's own settings")
        return env

    @property
    def env_texts(self) -> dict[str, str]:
        return {name: env_text(value) for name, value in (self.env or {}).items()}

    @model_validator(mode="after")
    def _agree(self) -> Self:
        try:
            self.sized()
        except ValidationError as error:  # sizes that contradict each other
            raise ValueError(validation_text(error, show_values=False)) from error
        return self

    def sized(self) -> FunctionRuntime:
        """The runtime, without `env`."""
        return FunctionRuntime.model_validate(self.sizes())

    def sizes(self) -> dict[str, Any]:
        """What was set of it, by the names that both sides have."""
        return {name: value for name in _SIZES if (value := getattr(self, name)) is not None}

    def not_honoured(self) -> list[str]:
        """What was sent and chooses nothing here, or less than it says."""
        used = {"layer_code", "env", *_SIZES}
        unused = [
            name for name in RuntimeAsked.model_fields if name not in used and getattr(self, name) is not None
        ]
        return unused + cut(self.sized())

    def effective(self) -> dict[str, Any]:
        """What is used, for people to see: names of variables, never their values."""
        return {
            "layer_code": self.layer_code,
            "concurrency": self.concurrency,
            **self.sizes(),
            "env": dict.fromkeys(self.env or {}, "***") or None,
        }


_SIZES = tuple(name for name in FunctionRuntime.model_fields if name != "env")
