"""Error -> what failed, at which boundary, and what to do: one flat family.

Everything here raises these; the HTTP edge takes `http_status` from them, a command line prints `str(error)`
and ends with `exit_status`. Imports nothing, so that `SandboxError` can be caught without loading the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_THROTTLED = 429


class SandboxError(Exception):
    """A failure that names the boundary it crossed and, where one is known, the fix.

    `boundary` and `http_status` are class attributes, so that a handler needs no table.
    """

    boundary = "sandbox"
    http_status = 500

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else self.message

    @property
    def exit_status(self) -> int:
        """2 for input that would be refused again, else 1."""
        return 2 if 400 <= self.http_status < 500 and self.http_status != _THROTTLED else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input: where it stands, what it is, how to fix it."""

    place: str
    message: str
    fix: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" + (f" ({self.fix})" if self.fix else "")


class _ProblemsError(SandboxError):
    """Lists every problem of an input at once. `problems` holds them all, the text the first `printed`."""

    http_status = 400
    printed = 20

    def __init__(self, subject: str, problems: Sequence[Problem]) -> None:
        self.subject = subject
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = "\n".join(f"  {problem}" for problem in self.problems[: self.printed])
        if len(self.problems) > self.printed:
            lines += f"\n  ... and {len(self.problems) - self.printed} more"
        super().__init__(f"{subject}: {count}\n{lines}")


class ConfigError(_ProblemsError):
    """Options that would not do what they say; nothing has been started."""

    boundary = "config"


class DataError(_ProblemsError):
    """Rows of a data set that cannot be used; nothing has been started."""

    boundary = "data"


class RequestError(SandboxError):
    """A request that makes no sense as it stands."""

    boundary = "request"
    http_status = 400


class TooLargeError(RequestError):
    """A body or a file beyond its limit."""

    http_status = 413


class ThrottledError(RequestError):
    """Too much at once; the same request may succeed later."""

    http_status = _THROTTLED


class UnavailableError(SandboxError):
    """A server that tests are read from cannot be reached, takes too long, or failed."""

    boundary = "server"
    http_status = 503
