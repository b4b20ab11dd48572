"""DashScope's `FunctionComponentRuntime` as clients send it: a `RuntimeRequest` that a server can take."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ValidationError, field_validator, model_validator

from strop.config.function import EnvValue, RuntimeRequest
from strop.functions import validation_text
from strop.workers.size import cut


class InstanceRuntimeRequest(RuntimeRequest):
    """Sizes agree with each other, and variables of the environment have names that a server takes."""

    @field_validator("env")
    @classmethod
    def _names(cls, env: dict[str, EnvValue] | None) -> dict[str, EnvValue] | None:
        for name in env or {}:
            if not name.isidentifier() or not name.isascii():
                raise ValueError(f"{name[:100]!r} is not a name for an environment variable")
            if name.startswith("STROP_"):
                raise ValueError(f"{name[:100]!r} cannot be set: STROP_ is for Strop's own settings")
        return env

    @model_validator(mode="after")
    def _agree(self) -> Self:
        try:
            self.sized()
        except ValidationError as error:  # sizes that contradict each other
            raise ValueError(validation_text(error, show_values=False)) from error
        return self

    def not_honoured(self) -> list[str]:
        """What was sent and chooses nothing here, or less than it says."""
        return self.clouds_own() + cut(self.sized())

    def effective(self) -> dict[str, Any]:
        """What is used, for people to see: names of variables, never their values."""
        return {
            "layer_code": self.layer_code,
            "concurrency": self.concurrency,
            **self.sizes(),
            "env": dict.fromkeys(self.env or {}, "***") or None,
        }
