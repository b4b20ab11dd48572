"""Preset rewards by name: what each is called, its parameters and their checks, made from its own signature.

`config.rules` checks a job's parameters here, the worker calls the presets through here, and
docs/rewards.md has its table from here. Importing this loads none of the libraries that presets compare with.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from strop.functions import presets

Check = Callable[[dict[str, Any]], str | None]

COMMON: dict[str, Any] = {
    "reference": Annotated[
        str | None,
        Field(
            min_length=1,
            description="key of rollout_extra (Ark: extra) that holds the reference; else it is ground_truth",
        ),
    ],
    "after": Annotated[
        str | None,
        Field(
            min_length=1,
            description="what is scored begins after the last of these, e.g. `</think>`; empty without one",
        ),
    ],
}
"""Parameters that every preset has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """One preset. `compares`: it wants a reference beside the answer. `score` of some is to be awaited."""

    name: str
    score: Callable[..., Any]
    compares: bool
    parameters: type[BaseModel]
    check: Check | None

    @property
    def summary(self) -> str:
        """The first line of its documentation."""
        return inspect.cleandoc(self.score.__doc__ or "").partition("\n")[0]

    @property
    def fields(self) -> dict[str, FieldInfo]:
        """Each parameter by its name."""
        return {str(info.alias): info for info in self.parameters.model_fields.values()}

    def values(self, checked: BaseModel) -> dict[str, Any]:
        """All parameters, defaults filled in."""
        return {name: getattr(checked, f"{name}_") for name in self.fields}

    def problems(self, params: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str, str | None]]:
        """(key, what is wrong, the fix) for each parameter that cannot be meant."""
        try:
            values = self.parameters.model_validate(dict(params))
        except ValidationError as error:
            return [self._problem(detail) for detail in error.errors(include_url=False)]
        wrong = self.check(self.values(values)) if self.check is not None else None
        if wrong is None:
            return []
        key, _, text = wrong.partition(": ")
        return [(("params", key), text, None)]

    def _problem(self, detail: Any) -> tuple[tuple[str | int, ...], str, str | None]:
        path: tuple[str | int, ...] = tuple(detail["loc"])
        known = list(self.fields)
        if detail["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(path[0]), known, n=1)
            fix = f"did you mean {near[0]!r}?" if near else f"{self.name} knows {', '.join(known)}"
            return ("params", *path), "unknown parameter", fix
        if detail["type"] == "missing":
            return ("params", *path), "missing", f"add {path[0]} to params"
        text = str(detail["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
        return ("params", *path), f"expected {text}; found {_short(detail['input'])}", None


@cache
def all_presets() -> dict[str, Preset]:
    """Every preset by its name, in reading order."""
    return {name: _preset(name) for name in presets.NAMES}


def preset_problems(
    name: str, params: Mapping[str, Any]
) -> Iterator[tuple[tuple[str | int, ...], str, str | None]]:
    """What is wrong with a preset of a job, by the keys below its function."""
    found = all_presets().get(name)
    if found is None:
        near = difflib.get_close_matches(name, all_presets(), n=1)
        fix = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(all_presets())}"
        yield ("preset",), f"no preset {name!r}", fix
        return
    yield from found.problems(params)


def _preset(name: str) -> Preset:
    score: Callable[..., Any] = getattr(presets, name)
    hints = get_type_hints(score, include_extras=True)
    names = inspect.signature(score).parameters
    fields = {
        one: (hints[one], ... if about.default is inspect.Parameter.empty else about.default)
        for one, about in names.items()
        if about.kind is inspect.Parameter.KEYWORD_ONLY
    }
    compares = "reference" in names
    fields |= {key: (kind, None) for key, kind in COMMON.items() if compares or key != "reference"}
    # By alias, because a parameter may be called as something that a pydantic class has.
    aliased = {f"{one}_": (kind, Field(default, alias=one)) for one, (kind, default) in fields.items()}
    strict = ConfigDict(extra="forbid", strict=True, protected_namespaces=())
    create: Any = create_model
    parameters: type[BaseModel] = create(name, __config__=strict, **aliased)
    check: Check | None = getattr(presets, f"check_{name}", None)
    return Preset(name=name, score=score, compares=compares, parameters=parameters, check=check)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
