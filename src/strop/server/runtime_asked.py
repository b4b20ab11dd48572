"""DashScope's `FunctionComponentRuntime` as clients send it -> what is used here, and what is not."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from strop.errors import RequestError

EnvValue = str | int | float | bool


class RuntimeAsked(BaseModel):
    """`concurrency`: calls in flight in a worker; `env` is secret. The sizes are a cloud container's."""

    model_config = ConfigDict(extra="forbid")

    layer_code: str | None = Field(default=None, max_length=100)
    concurrency: int | None = Field(default=None, ge=1, le=10_000)
    env: dict[str, EnvValue] | None = Field(default=None, max_length=1000)
    cpu: float | None = Field(default=None, gt=0, le=1024)
    memory_size: int | None = Field(default=None, ge=1, le=2**24)
    disk_size: int | None = Field(default=None, ge=1, le=2**28)
    capacity: int | None = Field(default=None, ge=0, le=100_000)
    min_capacity: int | None = Field(default=None, ge=0, le=100_000)
    max_capacity: int | None = Field(default=None, ge=1, le=100_000)
    memory_scale_threshold: float | None = Field(default=None, gt=0, le=100)
    concurrency_scale_threshold: float | None = Field(default=None, gt=0, le=100)
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

    def not_honoured(self) -> list[str]:
        """Names of settings that were sent and choose nothing here."""
        used = {"layer_code", "concurrency", "env"}
        return [
            name for name in type(self).model_fields if name not in used and getattr(self, name) is not None
        ]

    def effective(self) -> dict[str, Any]:
        """What is used, for people to see: names of variables, never their values."""
        return {
            "layer_code": self.layer_code,
            "concurrency": self.concurrency,
            "env": dict.fromkeys(self.env or {}, "***") or None,
        }


def env_text(value: EnvValue) -> str:
    """
    >>> env_text(True), env_text(3), env_text("x")
    ('true', '3', 'x')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def function_timeout(value: object) -> float | None:
    """Seconds that one call may take, where a client says so."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
        raise RequestError(f"timeout: found {value!r}, expected seconds in (0, 86400]")
    return float(value)
