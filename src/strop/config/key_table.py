"""The keys that a job file may have, made from the schema: types, ranges, homes; the one that was meant.

For `config.keys` and `config.explain`; other forms of a job are models of their own, with the same fields.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from strop.config.aliases import TRAINING_TYPES, called_here, not_here
from strop.config.file import KeyPath, dotted, short
from strop.config.job import JobConfig, OneOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """What one key takes. `kinds` are Python types; `choices` the allowed words, if there are only some;
    `example` a value that it takes, its default where it has one."""

    kinds: frozenset[type]
    required: bool
    choices: tuple[str, ...]
    range: str
    section: type[BaseModel] | None
    is_list: bool
    example: str

    @property
    def usual(self) -> str:
        """What to write where nothing better is known."""
        return f"e.g. {self.example}" if self.example else f"write {self.expected}, or remove it"

    @property
    def expected(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.is_list:
            return "a list"
        if self.section is not None or dict in self.kinds:
            return "keys and values"
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        return next((word for kind, word in words.items() if kind in self.kinds), "a value")


def field_at(path: KeyPath, root: type[BaseModel] = JobConfig) -> Field | None:
    """What the schema says of a key, or None if it knows none there."""
    if not path or not isinstance(path[-1], str):
        return None
    info = fields_at(path[:-1], root).get(path[-1])
    return _field(info) if info is not None else None


def fields_at(section: KeyPath, root: type[BaseModel] = JobConfig) -> dict[str, FieldInfo]:
    """The keys of a section by every name they have; none where there is no such section."""
    model: type[BaseModel] | None = root
    for key in section:
        if isinstance(key, int):
            continue
        info = _names(model).get(key) if model else None
        model = _field(info).section if info is not None else None
    return _names(model) if model else {}


def unknown_key(
    key: str, section: KeyPath, around: Mapping[str, Any], root: type[BaseModel] = JobConfig
) -> str:
    """The way from a key that is not there to the one that was meant."""
    if (why := not_here(key)) is not None:
        return why
    here, homes = fields_at(section, root), _all_homes(root)
    twin = next((name for name in here if name in around and here[name] is here.get(key)), None)
    if twin is not None:
        return f"{key!r} and {twin!r} are one key: keep one"
    if key == "beta":
        return "it is called 'dpo_beta' in DPO, 'kl_loss_coef' in reinforcement"
    if (other := called_here(key)) is not None:
        return f"it is called {other!r}" + (
            "" if other in here or other not in homes else f" and belongs in {homes[other][0]}"
        )
    if key in homes:
        return f"{key!r} belongs in {' or '.join(homes[key])}"
    if near := difflib.get_close_matches(key, here, n=1):
        return f"did you mean {near[0]!r}?"
    if near := difflib.get_close_matches(key, homes, n=1, cutoff=0.75):
        return f"did you mean {near[0]!r}? It belongs in {homes[near[0]][0]}"
    return f"known here: {', '.join(here)}" if here else "remove it"


def wrong_choice(value: object, field: Field | None) -> tuple[str, str | None]:
    """A word that is not among the choices, with the nearest that is."""
    choices = field.choices if field else ()
    message = f"expected one of {', '.join(choices)}; found {short(value)}"
    word = str(value).lower()
    if "cpt" in choices and word in TRAINING_TYPES:
        return message, TRAINING_TYPES[word]
    near = difflib.get_close_matches(word, choices, n=1)
    return message, f"did you mean {near[0]!r}?" if near else field.usual if field else None


def path_of(name: str) -> KeyPath | None:
    """The full path of a key that stands in exactly one section outside lists, such as `learning_rate`."""
    found = [(*section, key) for section, key in _walk(JobConfig, ()) if key == name and "[]" not in section]
    return found[0] if len(found) == 1 else None


@cache
def _all_homes(root: type[BaseModel]) -> dict[str, list[str]]:
    """Every section that has a key, in words."""
    homes: dict[str, list[str]] = {}
    for section, key in _walk(root, ()):
        home = dotted(section).replace(".[]", "[]") if section else "the top of the file"
        homes.setdefault(key, []).append(home)
    return homes


def _walk(model: type[BaseModel], section: KeyPath) -> list[tuple[KeyPath, str]]:
    """Every key below a section, with the section it stands in."""
    keys: list[tuple[KeyPath, str]] = []
    for name, info in _names(model).items():
        keys.append((section, name))
        field = _field(info)
        if field.section is not None:
            keys += _walk(field.section, (*section, name, "[]") if field.is_list else (*section, name))
    return keys


def _names(model: type[BaseModel]) -> dict[str, FieldInfo]:
    names: dict[str, FieldInfo] = {}
    for name, info in model.model_fields.items():
        names[name] = info
        if isinstance(info.validation_alias, AliasChoices):
            names |= {str(alias): info for alias in info.validation_alias.choices}
    return names


def _field(info: FieldInfo) -> Field:
    kinds: set[type] = set()
    choices: list[str] = []
    marks: list[Any] = list(info.metadata)
    section: type[BaseModel] | None = None
    is_list = False
    todo: list[Any] = [info.annotation]
    while todo:
        annotation = todo.pop()
        origin = get_origin(annotation)
        if origin in (Union, UnionType):
            todo += get_args(annotation)
        elif origin is Annotated:
            todo.append(get_args(annotation)[0])
            for mark in get_args(annotation)[1:]:
                marks += mark.metadata if isinstance(mark, FieldInfo) else [mark]
        elif origin is Literal:
            kinds.add(str)
            choices += get_args(annotation)
        elif origin in (tuple, list):
            is_list = True
            todo.append(get_args(annotation)[0])
        elif origin is dict or annotation is dict:
            kinds.add(dict)
        elif isinstance(annotation, type) and issubclass(annotation, StrEnum):
            kinds.add(str)
            choices += [member.value for member in annotation]
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
            section = annotation
        elif isinstance(annotation, type) and annotation is not NoneType:
            kinds.add(annotation)
    for mark in marks:
        if isinstance(mark, OneOf):
            choices += mark.words()
    return Field(
        kinds=frozenset(kinds),
        required=info.is_required(),
        choices=tuple(choices),
        range=_range(marks),
        section=section,
        is_list=is_list,
        example=_example(info, choices),
    )


def _example(info: FieldInfo, choices: Sequence[str]) -> str:
    """Its default as one would write it, else a word that it takes."""
    default: object = info.default if not info.is_required() and info.default_factory is None else None
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, (int, float, str)) and default != "":
        return str(default)
    return choices[0] if choices else ""


NO_BOUNDS = "(-inf, inf)"


def _range(marks: Sequence[object]) -> str:
    """The bounds of a number as mathematicians write them: `[0, 1]`, `(0, inf)`."""
    low, high = "(-inf", "inf)"
    for bound in marks:
        match bound:
            case annotated_types.Ge(ge=value):
                low = f"[{value}"
            case annotated_types.Gt(gt=value):
                low = f"({value}"
            case annotated_types.Le(le=value):
                high = f"{value}]"
            case annotated_types.Lt(lt=value):
                high = f"{value})"
            case _:
                pass
    return f"{low}, {high}"
