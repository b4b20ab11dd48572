"""YAML text -> nodes, and what each scalar means. For `config.file`.

Scalars follow YAML 1.2: `2e-6` is a number and `no` is text, where PyYAML's 1.1 rules make a string of the
one and a false of the other. Whatever is quoted is text.
"""

from __future__ import annotations

import re
from typing import cast

import yaml

MAX_DEPTH = 64
"""Of sections in sections; no job comes near it."""

TAG = "tag:yaml.org,2002:"

_MAX_DIGITS = 300
"""A number of more is no float either."""

MOST_SHOWN = 160


class TooDeep(Exception):
    """Raised by the scanner, which looks at a token long before anything is made of it."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  PyYAML's own

    def add_indent(self, column: int) -> bool:
        if self.indent < column:
            self._check_depth()
        return cast("bool", super().add_indent(column))  # pyright: ignore[reportUnknownMemberType]

    def fetch_flow_collection_start(self, TokenClass: type[yaml.Token]) -> None:
        self._check_depth()
        super().fetch_flow_collection_start(TokenClass)  # pyright: ignore[reportUnknownMemberType]

    def _check_depth(self) -> None:
        if len(self.indents) + self.flow_level >= MAX_DEPTH:
            raise TooDeep(self.line + 1)


_FORMS = {
    "null": (r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": (r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": (r"[-+]?[0-9]+", list("-+0123456789")),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
}
"""By tag: how such a value is written, and with what it can begin."""

for _name, (_pattern, _first) in _FORMS.items():
    _Loader.add_implicit_resolver(TAG + _name, re.compile(rf"^(?:{_pattern})\Z"), _first)  # pyright: ignore[reportUnknownMemberType]


def compose(text: str) -> yaml.Node | None:
    """
    Raises:
        YAMLError: it is not YAML. TooDeep: nobody should look at all of it.
    """
    try:
        return cast("yaml.Node | None", yaml.compose(text, Loader=_Loader))  # pyright: ignore[reportUnknownMemberType]
    except (ValueError, OverflowError) as error:  # PyYAML's own, of escapes that name no character
        raise yaml.YAMLError(str(error)) from error


def value_of(node: yaml.ScalarNode) -> object:
    """
    Raises:
        ValueError: what is written is not what the tag says, or no number of this machine.
    """
    text, tag = cast("str", node.value), node.tag.removeprefix(TAG)
    if tag in _FORMS and not re.fullmatch(_FORMS[tag][0], text):
        raise ValueError("does not fit its tag")
    match tag:
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return _whole_number(text)
        case "float":
            return _number(text)
        case _:
            return text


def _whole_number(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("has far too many digits")
    return int(text)


def _number(text: str) -> float:
    number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    if number == 0 and re.search("[1-9]", text.lower().partition("e")[0]):
        raise ValueError("is too near 0 to be told from it")
    return number


def short(value: object) -> str:
    """A value as a message shows it.

    >>> len(short("x" * 500)), short("x" * 500)[-6:]
    (144, "xx...'")
    """
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 20]}...{text[-1]}"
