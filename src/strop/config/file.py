"""A YAML file -> plain data, with the place of every key. For `config.loading`.

Scalars follow YAML 1.2: `2e-6` is a number and `no` is text, where PyYAML's 1.1 rules make a string of the
one and a false of the other. Whatever is quoted is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from strop.data.half_characters import HALF_FIX, half_character
from strop.errors import ConfigError, Problem

KeyPath = tuple[str | int, ...]

HYPER: KeyPath = ("training", "hyper_parameters")

MAX_DEPTH = 64
"""Of sections in sections; no job comes near it."""

_TAG = "tag:yaml.org,2002:"

_MAX_DIGITS = 300
"""A number of more is no float either."""

MOST_SHOWN = 160


MAX_BYTES = 256 * 1024
MAX_VALUES = 5_000
"""With what aliases repeat: a small file can blow itself up by them. No job comes near either."""


@dataclass(slots=True)
class JobFile:
    """What a file says. `places` holds `file:line` by key path; `problems` what the text itself has wrong.

    `unread` are the paths whose value could not be made out; None stands there. `written` holds the name that
    the file gave a key, where it is read under another.
    """

    path: Path
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    places: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    problems: list[Problem] = field(default_factory=list[Problem])
    unread: set[KeyPath] = field(default_factory=set[KeyPath])
    written: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])

    def place(self, path: KeyPath) -> str:
        """Where a key stands, else the nearest key around it, else the file's first line."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, f"{self.path}:1")

    def override(self, path: KeyPath, value: object, place: str) -> None:
        """Set a value as if the file said so; sections that are missing are made. `place`: who says it."""
        at: Any = self.data
        here: KeyPath = ()
        for key in path[:-1]:
            if isinstance(at, dict):
                section, name = cast("dict[str, Any]", at), str(key)
                here = (*here, name)
                if not isinstance(section.get(name), (dict, list)):
                    section[name] = {}
                    self._placed(here, place)
                at = section[name]
            elif _is_item(at, key):
                here, at = (*here, key), at[key]
            else:
                self._nothing_there((*here, key), at, place)
                return
        if isinstance(at, dict):
            here = (*here, str(path[-1]))
            cast("dict[str, Any]", at)[str(path[-1])] = value
        elif _is_item(at, path[-1]):
            here = (*here, path[-1])
            at[path[-1]] = value
        else:
            self._nothing_there((*here, path[-1]), at, place)
            return
        self._placed(here, place)

    def _placed(self, path: KeyPath, place: str) -> None:
        """Somebody else than the file says what stands at a path."""
        for below in [one for one in self.places if one[: len(path)] == path]:
            del self.places[below]
        self.places[path] = place

    def _nothing_there(self, path: KeyPath, around: object, place: str) -> None:
        fix = "name one that the file has"
        if isinstance(around, list) and isinstance(path[-1], str):
            fix = f"say which one: {dotted((*path[:-1], 0))}.{path[-1]}"
        message = f"there is no {dotted(path)} to change"
        self.problems.append(Problem(place=place, message=message, fix=fix))

    def rename(self, path: KeyPath, name: str) -> None:
        """Read a key of the file under another name; its place and its name in the file stay known."""
        section: Any = self.data
        for key in path[:-1]:
            section = section[key]
        target = (*path[:-1], name)
        section[name] = section.pop(path[-1])
        # A job that came as a request has no place of its own for each key.
        self.places[target] = self.places.pop(path, self.place(path))
        self.written[target] = str(path[-1])


def _is_item(around: object, key: str | int) -> bool:
    return isinstance(around, list) and isinstance(key, int) and key < len(cast("list[Any]", around))


def dotted(path: KeyPath) -> str:
    """
    >>> dotted(("functions", 1, "fcmodel", "classpath"))
    'functions[1].fcmodel.classpath'
    """
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def read_job_file(path: Path) -> JobFile:
    """Read a file.

    Raises:
        ConfigError: there is no such file, or it is not YAML: nothing more can be said about it.
    """
    try:
        if half_character(str(path.resolve())) is not None:
            message = "its path contains a name that is not UTF-8"
            raise _refusal(path, str(path), message, "rename it")
        with path.open("rb") as file:
            read = file.read(MAX_BYTES + 1)
        if len(read) > MAX_BYTES:
            message = f"larger than {MAX_BYTES // 1024} KiB: this is not a job file"
            raise _refusal(
                path, str(path), message, "put rows into a dataset file and code into a function file"
            )
        text = read.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            line = error.object[: error.start].count(b"\n") + 1
            raise _refusal(path, f"{path}:{line}", "not UTF-8", "save the file as UTF-8") from error
        why = getattr(error, "strerror", None) or error
        raise _refusal(path, str(path), f"cannot be read: {why}") from error
    try:
        root = _compose(text)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(path, error) from error
    except _TooDeep as error:
        message = f"nested deeper than {MAX_DEPTH} levels: this is not a job file"
        raise _refusal(path, f"{path}:{error.line}", message, "check brackets and indentation") from error
    except yaml.YAMLError as error:
        raise _refusal(path, f"{path}:1", f"not YAML: {error}") from error
    if root is None:
        raise _refusal(path, f"{path}:1", "the file is empty", "a job needs model, datasets and functions")
    file = JobFile(path=path)
    data = _Reader(file).read(root, ())
    if not isinstance(data, dict):
        raise _refusal(
            path, f"{path}:1", "expected keys and values at the top level", "e.g. model: smollm2-135m"
        )
    file.data = cast("dict[str, Any]", data)
    return file


def read_scalar(text: str) -> object:
    """What a file would make of `text` as a value: a number, true, false, null, else the text.

    >>> read_scalar("2e-6"), read_scalar("no"), read_scalar("8")
    (2e-06, 'no', 8)
    """
    try:
        node = _compose(text)
        return _value_of(node) if isinstance(node, yaml.ScalarNode) and node.tag.startswith(_TAG) else text
    except (yaml.YAMLError, _TooDeep, ValueError):
        return text


class _Reader:
    """Nodes -> data, noting places and what is wrong on the way."""

    def __init__(self, file: JobFile) -> None:
        self.file = file
        self.open: set[int] = set()
        self.count = 0

    def read(self, node: yaml.Node, path: KeyPath) -> object:
        self.count += 1
        if self.count > MAX_VALUES:
            message = f"more than {MAX_VALUES} values, counting what aliases repeat: this is not a job file"
            raise _refusal(self.file.path, self.place(node), message, "write the values out")
        if id(node) in self.open:
            self.file.unread.add(path)
            self.complain(node, path, "an alias that contains itself", "write the value out")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                items = cast("list[yaml.Node]", node.value)
                for index, item in enumerate(items):
                    self.file.places[*path, index] = self.place(item)
                return [self.read(item, (*path, index)) for index, item in enumerate(items)]
            assert isinstance(node, yaml.ScalarNode)
            return self.scalar(node, path)
        finally:
            self.open.discard(id(node))

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if not isinstance(key_node, yaml.ScalarNode):
                self.complain(key_node, path, "a key must be plain text", "write text, without brackets")
                continue
            key = cast("str", key_node.value)
            if (wrong := _unwritable(key)) is not None:
                self.complain(key_node, path, f"the key {key!r} {wrong[0]}", wrong[1])
                continue
            if key_node.tag == _TAG + "merge" or key == "<<":
                self.complain(key_node, path, "merge keys (<<) are not supported", "write the keys out")
                continue
            here = (*path, key)
            if key in data:
                first = self.file.places[here].rsplit(":", 1)[-1]
                self.complain(key_node, here, f"appears twice, first in line {first}", "keep one of them")
                continue
            self.file.places[here] = self.place(key_node)
            data[key] = self.read(value_node, here)
        return data

    def scalar(self, node: yaml.ScalarNode, path: KeyPath) -> object:
        if node.tag.removeprefix(_TAG) not in ("null", "bool", "int", "float", "str"):
            self.file.unread.add(path)
            self.complain(node, path, f"the tag {node.tag!r} is not supported", "write the plain value")
            return None
        if (wrong := _unwritable(node.value)) is not None:
            self.file.unread.add(path)
            self.complain(node, path, *wrong)
            return None
        try:
            return _value_of(node)
        except ValueError as error:
            self.file.unread.add(path)
            self.complain(node, path, f"{short(node.value)} {error}", "write the plain value")
            return None

    def complain(self, node: yaml.Node, path: KeyPath, message: str, fix: str | None = None) -> None:
        where = dotted(path)
        text = f"{where}: {message}" if where else message
        self.file.problems.append(Problem(place=self.place(node), message=text, fix=fix))

    def place(self, node: yaml.Node) -> str:
        return f"{self.file.path}:{node.start_mark.line + 1}"


def _unwritable(text: str) -> tuple[str, str] | None:
    """What in a text no name of a file, a model or anything else can hold, and the fix."""
    if "\0" in text:
        return "contains a NUL character", "remove it"
    half = half_character(text)
    return None if half is None else (half, HALF_FIX)


def _syntax_error(path: Path, error: yaml.MarkedYAMLError) -> ConfigError:
    """Point at where the trouble began: an open quote is noticed only at the end of the file."""
    context = error.context or ""
    began_earlier = "quoted scalar" in context or "flow" in context
    mark = error.context_mark if began_earlier and error.context_mark else error.problem_mark
    line = mark.line + 1 if mark else 1
    problem = error.problem or "broken"
    fix = "check quotes, colons and indentation there"
    if "'\\t'" in problem:
        fix = "indent with spaces, not with a tab"
    elif "mapping values are not allowed" in problem:
        fix = "put text that contains ': ' in quotes, and indent keys of one section alike"
    elif "expected a single document" in context:
        fix = "keep one job in the file: remove the '---' line"
    return _refusal(path, f"{path}:{line}", f"not YAML: {problem}", fix)


def _refusal(path: Path, place: str, message: str, fix: str | None = None) -> ConfigError:
    return ConfigError(str(path), [Problem(place=place, message=message, fix=fix)])


class _TooDeep(Exception):
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
            raise _TooDeep(self.line + 1)


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
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})\Z"), _first)  # pyright: ignore[reportUnknownMemberType]


def _compose(text: str) -> yaml.Node | None:
    """
    Raises:
        YAMLError: it is not YAML. _TooDeep: nobody should look at all of it.
    """
    try:
        return cast("yaml.Node | None", yaml.compose(text, Loader=_Loader))  # pyright: ignore[reportUnknownMemberType]
    except (ValueError, OverflowError) as error:  # PyYAML's own, of escapes that name no character
        raise yaml.YAMLError(str(error)) from error


def _value_of(node: yaml.ScalarNode) -> object:
    """
    Raises:
        ValueError: what is written is not what the tag says, or no number of this machine.
    """
    text, tag = cast("str", node.value), node.tag.removeprefix(_TAG)
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
        raise ValueError("is too close to 0 to make a difference")
    return number


def short(value: object) -> str:
    """A value as a message shows it.

    >>> len(short("x" * 500)), short("x" * 500)[-6:]
    (144, "xx...'")
    """
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 20]}...{text[-1]}"
