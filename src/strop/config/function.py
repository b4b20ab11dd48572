"""A function of a job, in every form that it has: in a job file, in a request, in the client.

Each number has its one range here. `FunctionConfig` is the function that a run uses. `FunctionSettings` and
`RuntimeRequest` are what clients may say of one, everything optional, with the words that only clouds have
beside; the client's components and the requests of a door are made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from strop.schema.function import FunctionType
from strop.schema.section import Contradiction, Section

MIN_TIMEOUT_S, MAX_TIMEOUT_S = 0.001, 86_400

Concurrency = Annotated[int, Field(ge=1, le=10_000)]
"""Calls in flight in one worker."""

Timeout = Annotated[float, Field(ge=MIN_TIMEOUT_S, le=MAX_TIMEOUT_S, allow_inf_nan=False)]
"""Seconds that one call may take."""

Weight = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
"""What a reward, or a part of one, counts."""

FunctionName = Annotated[str, Field(max_length=256)]
"""Its name in metrics and logs."""

PresetName = Annotated[str, Field(min_length=1, max_length=100)]

EnvValue = str | int | float | bool
"""What a client may give a variable of the environment."""


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
                raise Contradiction(f"{name!r} is not a name for a variable", fix="letters, digits and _")
            if not isinstance(value, str | int | float):
                found = "nothing" if value is None else f"a {type(value).__name__}"
                text = f"{name} is {found}; an environment variable is text"
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
                text = f"{key}: has no effect: min_capacity and max_capacity are both {most}"
                raise Contradiction(text, fix="set max_capacity above min_capacity")
        if self.memory_scale_threshold is not None and self.memory_size is None:
            text = "memory_scale_threshold: has no effect without memory_size, whose share it is"
            raise Contradiction(text, fix="set memory_size")
        return self


class RuntimeRequest(RuntimeSizes):
    """How a function should run, as a client says it: the sizes of `FunctionRuntime`, and what clouds have
    beside, which chooses nothing here. `env` is secret.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    layer_code: str | None = Field(default=None, max_length=100)
    concurrency: Concurrency | None = None
    env: dict[str, EnvValue] | None = Field(default=None, max_length=1000, repr=False)
    enable_vpc_config: bool | None = None
    security_group_id: str | None = None
    switch_ids: list[str] | None = None
    vpc_id: str | None = None
    vpc_role: str | None = None
    enable_log: bool | None = None

    def sizes(self) -> dict[str, Any]:
        """What was set of `FunctionRuntime`, but for `env`."""
        names = (name for name in FunctionRuntime.model_fields if name != "env")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def sized(self) -> FunctionRuntime:
        """The runtime, without `env`."""
        return FunctionRuntime.model_validate(self.sizes())

    @property
    def env_texts(self) -> dict[str, str]:
        return {name: env_text(value) for name, value in (self.env or {}).items()}

    def clouds_own(self) -> list[str]:
        """What was set and chooses nothing here."""
        used = {"layer_code", "env", *FunctionRuntime.model_fields}
        return [
            name
            for name in RuntimeRequest.model_fields
            if name not in used and getattr(self, name) is not None
        ]


def env_text(value: EnvValue) -> str:
    """
    >>> env_text(True), env_text(3), env_text("x")
    ('true', '3', 'x')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


class FunctionSettings(BaseModel):
    """How one job uses a function, as a client says it."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    name: FunctionName | None = None
    timeout: Timeout | None = None
    weight: Weight | None = None
    reward_metric_weight: dict[str, Weight] | None = None
    preset: PresetName | None = None
    params: dict[str, Any] | None = None


class FunctionModel(Section):
    """Where a function's code is: `pkg.mod.Class` or `path/file.py:Class`, below `zipdir`."""

    classpath: str = Field(min_length=1)
    zipdir: str = "."


PRESET_CODE = {"classpath": "strop.functions.preset_reward.PresetReward"}
"""What runs a preset reward, in a worker as user code runs."""


class FunctionConfig(Section):
    """A rollout, reward or group-reward function. `timeout` in seconds a call; `weight` scales a reward.

    Either code of the user's (`fcmodel`) or one of Strop's rewards by its name (`preset`), set by `params`.
    `reward_metric_weight` weighs the parts of a decorated reward, or the metrics of another one.
    """

    type: FunctionType
    name: FunctionName = ""
    timeout: Timeout = 600.0
    weight: Weight = 1.0
    reward_metric_weight: dict[str, Weight] = Field(default_factory=dict[str, float])
    preset: str | None = None
    params: dict[str, Any] = Field(default_factory=dict[str, Any])
    fcmodel: FunctionModel
    runtime: FunctionRuntime = FunctionRuntime()

    @model_validator(mode="before")
    @classmethod
    def _of_preset(cls, data: Any) -> Any:
        values = cast("dict[str, Any]", data)
        if not isinstance(data, dict) or not values.get("preset"):
            return values
        code: Any = values.get("fcmodel")
        if code is not None:
            read = cast("dict[str, Any]", code if isinstance(code, dict) else vars(code))
            if read.get("classpath") == PRESET_CODE["classpath"]:  # read again as it was stored
                return values
            raise Contradiction(
                "preset: cannot be combined with fcmodel", fix="keep one: a preset is its own code"
            )
        return {"type": FunctionType.REWARD, **values, "fcmodel": PRESET_CODE}

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.type is FunctionType.ROLLOUT:
            for key in ("weight", "reward_metric_weight"):
                if key in self.model_fields_set:
                    raise Contradiction(f"{key}: has no effect on a rollout function; it scales rewards")
        if self.preset is None and self.params:
            raise Contradiction(
                "params: have no effect without a preset", fix="name a preset, e.g. preset: math"
            )
        if self.preset is not None and self.type is not FunctionType.REWARD:
            raise Contradiction("type: a preset is always of type reward", fix="remove type")
        if self.reward_metric_weight and not any(self.reward_metric_weight.values()):
            raise Contradiction("reward_metric_weight: every weight is 0", fix="raise at least one")
        return self

    @property
    def label(self) -> str:
        """Its name in metrics and logs: `name`, else the preset's or the class's own."""
        return self.name or self.preset or self.fcmodel.classpath.replace(":", ".").rsplit(".", 1)[-1]


def clashes(functions: Sequence[tuple[FunctionType, str]]) -> Iterator[Contradiction]:
    """What no two functions of a job may share; each is given by its type and label."""
    kinds, labels = [kind for kind, _ in functions], [label for _, label in functions]
    if (found := kinds.count(FunctionType.ROLLOUT)) > 1:
        text = f"functions: at most one of type rollout, found {found}"
        yield Contradiction(text, fix="keep one of them")
    for label in dict.fromkeys(labels):
        if labels.count(label) > 1:
            text = f"functions: the name {label!r} is used twice"
            yield Contradiction(text, fix="give each its own name")
        if (longer := next((one for one in labels if one.startswith(f"{label}/")), None)) is not None:
            text = f"functions: metrics of {label!r} and {longer!r} would share names"
            fix = "rename one: no name may be another one followed by a slash"
            yield Contradiction(text, fix=fix)
