"""What a benchmark is: how its rows are asked, and how a completion becomes a program that is judged.

One declaration a benchmark (`benchmarks.BENCHMARKS`); nothing in this package runs a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any, Protocol

import orjson

from strop_sandbox.cases import Case
from strop_sandbox.errors import RequestError
from strop_sandbox.extraction import ExtractedType
from strop_sandbox.wire import TestConfig

Row = Mapping[str, Any]
ID_FIELDS = ("id", "task_id", "question_id", "_id", "name")


@dataclass(frozen=True, slots=True)
class Problem:
    """One row, its fields also found under `labels`, as SandboxFusion's tables have them."""

    row: Row
    dataset: str = ""

    @property
    def id(self) -> int | str:
        return identity(self.row)

    @property
    def labels(self) -> dict[str, Any]:
        labels = self.row.get("labels")
        found = _decoded(labels) if isinstance(labels, str) else labels
        return dict(found) if isinstance(found, Mapping) else {}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

    def find(self, *names: str) -> Any:
        """The first of these fields that is there and not null, else None."""
        places = (self.row, self.labels)
        found = (place[name] for name in names for place in places if place.get(name) is not None)
        return next(found, None)

    def need(self, *names: str) -> Any:
        """Raises:
        RequestError: none of these fields is there.
        """
        found = self.find(*names)
        if found is None:
            raise RequestError(
                f"problem {self.id!r} has no {' or '.join(names)}",
                fix=f"give it in the row or in its labels; there are {', '.join(self.row)}",
            )
        return found

    def text(self, *names: str) -> str:
        """Raises:
        RequestError: none of these fields exists, or it is not text.
        """
        found = self.need(*names)
        if not isinstance(found, str):
            raise RequestError(f"problem {self.id!r}: {names[0]} is text, found {type(found).__name__}")
        return found

    def json(self, *names: str) -> Any:
        """A field that may be JSON in a string.

        Raises:
            RequestError: it is not there, or a string that is not JSON.
        """
        found = self.need(*names)
        if not isinstance(found, str):
            return found
        decoded = _decoded(found)
        if decoded is None:
            raise RequestError(f"problem {self.id!r}: {names[0]} is a string that is not JSON")
        return decoded

    def test_program(self) -> tuple[str, dict[str, Any]]:
        """The test's program and its files: a text, or {code, asset}.

        Raises:
            RequestError: it does not exist.
        """
        given = self.need("test", "testcases")
        found = _decoded(given) if isinstance(given, str) and given.lstrip().startswith("{") else given
        if isinstance(found, str):
            return found, {}
        code: Any = found.get("code", "") if isinstance(found, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if not isinstance(code, str):
            raise RequestError(f"problem {self.id!r}: test is a program or an object with code")
        asset: Any = found.get("asset") or {}  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        files: Any = _decoded(asset) if isinstance(asset, str) else asset  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(files, Mapping) or not all(isinstance(one, str | None) for one in files.values()):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType, reportUnknownMemberType]
            raise RequestError(f"problem {self.id!r}: test.asset is an object of files in base64")
        return code, {str(name): text for name, text in files.items() if text is not None}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType, reportUnknownMemberType]


def identity(row: Row) -> int | str:
    """What a row is called: the first of `ID_FIELDS` that it has; 0 without any."""
    found = next((row[name] for name in ID_FIELDS if name in row), 0)
    return found if isinstance(found, int | str) else str(found)


class Accepts(Protocol):
    """A rule of comparison: what a program said, what it should say, and whether letter for letter."""

    def __call__(self, said: str, expected: str, *, strict: bool) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A completion as it is judged. Without `cases` it is right when the program ends well.

    `to_the_end`: it must also reach its end, so that one that leaves early is not taken for right.
    `cases` are run one by one; `accepts` compares, or `judge`, a Python program called as `extra.checker` is.
    `is_right`: known without running anything.
    """

    code: str
    language: str
    program: str
    found: ExtractedType | None = None
    test_code: str | None = None
    files: Mapping[str, Any] = field(default_factory=dict[str, Any])
    to_the_end: bool = True
    cases: tuple[Case, ...] = ()
    accepts: Accepts | None = None
    judge: str = ""
    is_right: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A public benchmark, by the name of its class in SandboxFusion.

    `datasets`: names of files that are its own, as patterns. `needs`: fields of a row, of each one at least.
    `modes`: ways to ask one row, as `config.extra.mode`. `category`: in Python, what a result `r` counts to.

    Units:
        `compile_s` and `run_s` seconds, where a request says nothing; `run_s` a case where it has cases.
    """

    name: str
    datasets: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]
    prompt: Callable[[Problem, TestConfig], str]
    attempt: Callable[[Problem, str, TestConfig], Attempt]
    compile_s: float = 20.0
    run_s: float = 20.0
    modes: tuple[str, ...] = ()
    category: str = ""

    def is_called(self, dataset: str) -> bool:
        return any(fnmatch(dataset.lower(), pattern) for pattern in self.datasets)

    def lacks(self, row: Row) -> list[str]:
        """The fields that this row should have."""
        problem = Problem(row)
        return [" or ".join(names) for names in self.needs if problem.find(*names) is None]


def _decoded(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
