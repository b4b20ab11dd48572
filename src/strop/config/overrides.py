"""`KEY=VALUE` of a command line or a program -> values set in a job as if its file said so.

For `config.loading`, and for clients that read a job to send it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strop.config.aliases import is_read
from strop.config.file import HYPER, JobFile, KeyPath, read_scalar
from strop.config.key_table import path_of
from strop.data.half_characters import half_character
from strop.errors import Problem

_EXAMPLES = {
    "datasets": "datasets.0.file_name",
    "functions": "functions.0.timeout",
    "training": "training.hyper_parameters.max_steps",
}
_OTHER_NAME: dict[KeyPath, KeyPath] = {("name",): ("job_name",), ("job_name",): ("name",)}
"""One key under two names: an override of the one replaces the other."""

_MAX_INDEX_DIGITS = 6


def apply_overrides(
    file: JobFile, values: Mapping[str, Any], given_by: Mapping[str, str], *, otherwise: str = "override"
) -> None:
    """Set every value; a bare name finds its section. What cannot be set is a problem of the file.

    `given_by` says for a name which option of the command line it was; where it does not, `otherwise` does.
    """
    set_by: dict[KeyPath, str] = {}
    for name, value in values.items():
        place = given_by.get(name, otherwise)
        try:
            path = _path(name)
            other_name = _OTHER_NAME.get(path)
            if other_name is not None and other_name[0] in file.data:
                path = other_name
            if isinstance(value, str):
                _check_text(value)
                value = read_scalar(value)
            for other, its_name in set_by.items():
                if path[: len(other)] == other[: len(path)]:
                    raise _Refused(f"{name}: {its_name!r} sets it, too", "keep one of them")
        except _Refused as error:
            file.problems.append(Problem(place=place, message=error.message, fix=error.fix))
            continue
        set_by[path] = name
        file.override(path, value, place)


class _Refused(Exception):
    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


def _path(name: str) -> KeyPath:
    """
    Raises:
        _Refused: it names no key, or a whole section.
    """
    _check_text(name)
    parts = [part for part in name.replace("[", ".").replace("]", "").split(".") if part]
    path: KeyPath = tuple(int(part) if _is_index(part) else part for part in parts)
    if len(path) == 1 and isinstance(path[0], str):
        # Ark's names stand in one section only; a bare one is meant there.
        path = path_of(path[0]) or ((*HYPER, path[0]) if is_read(path[0]) else path)
    if not path or isinstance(path[0], int):
        raise _Refused(f"{name!r} names no key", "e.g. learning_rate=1e-5")
    if len(path) == 1 and path[0] in _EXAMPLES:
        raise _Refused(
            f"{name}: a whole section cannot be overridden", f"name a key, e.g. {_EXAMPLES[path[0]]}"
        )
    return path


def _is_index(part: str) -> bool:
    return part.isascii() and part.isdigit() and len(part) <= _MAX_INDEX_DIGITS


def _check_text(text: str) -> None:
    """No file, process or database can hold these."""
    if "\0" in text:
        raise _Refused(f"{text!r} contains a NUL character", "remove it")
    if (half := half_character(text)) is not None:
        raise _Refused(f"{text!r} {half}", "write it in UTF-8")
