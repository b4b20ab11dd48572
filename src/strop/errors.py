"""Error -> what failed, at which boundary, and what to do: one flat family.

Everything raises these; the HTTP edge takes `http_status` from them, the command line prints `str(error)`.
Imports nothing but the form of a text in two languages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strop.locales import joined, msg, plural


class StropError(Exception):
    """A failure that names the boundary it crossed and, where one is known, the fix.

    `boundary` and `http_status` are class attributes, so that a handler needs no table.
    """

    boundary = "strop"
    http_status = 500
    request_id: str | None = None
    """Under which the server's log knows the failure, where a server told it."""

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  fix: {self.fix}" if self.fix else str(self.message)

    @property
    def told(self) -> str:
        """The same as `str`, to be said in the reader's language."""
        if not self.fix:
            return self.message
        return msg("{message}\n  fix: {fix}", message=self.message, fix=self.fix)


def told_of(error: BaseException) -> str:
    """Why something ended, for who reads it later."""
    return error.told if isinstance(error, StropError) else str(error) or type(error).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with an input: where it stands, what it is, how to fix it."""

    place: str
    message: str
    fix: str | None = None

    def __str__(self) -> str:
        return str(self.told)

    @property
    def told(self) -> str:
        """In a line, to be said in the reader's language."""
        line = (
            msg("{place}: {message}", place=self.place, message=self.message) if self.place else self.message
        )
        return msg("{line} ({fix})", line=line, fix=self.fix) if self.fix else line


class _ProblemsError(StropError):
    """Base of the errors that list every problem of an input at once."""

    http_status = 400
    printed: int | None = None
    """How many of the problems the text shows; None: all. `problems` holds them all."""

    def __init__(self, subject: str, problems: Sequence[Problem]) -> None:
        self.subject = subject
        self.problems = tuple(problems)
        lines = [joined("", "  ", problem.told) for problem in self.problems[: self.printed]]
        if self.printed is not None and len(self.problems) > self.printed:
            lines.append(msg("  ... and {left} more", left=len(self.problems) - self.printed))
        text = plural(
            "{subject}: {count} problem\n{lines}",
            "{subject}: {count} problems\n{lines}",
            count=len(self.problems),
            subject=subject,
            lines=joined("\n", *lines),
        )
        super().__init__(text)


class ConfigError(_ProblemsError):
    """A configuration that would not do what it says; nothing has been started."""

    boundary = "config"


class DataError(_ProblemsError):
    """Dataset rows that cannot be used; nothing has been started."""

    boundary = "data"
    printed = 20


class FunctionError(StropError):
    """A user function could not be loaded, started or reached. A failed *call* is data, not this."""

    boundary = "function"
    http_status = 422


class ModelError(StropError):
    """A model name that resolves to nothing, or weights that cannot be loaded."""

    boundary = "model"
    http_status = 404


class EngineError(StropError):
    """The engine cannot run a request: too long, not enough KV memory, stopped."""

    boundary = "engine"
    http_status = 400


class StoreError(StropError):
    """The database or the blob store refused."""

    boundary = "store"


class MissingError(StoreError):
    """No such thing, or none that this caller may see: the two are not told apart."""

    http_status = 404


class ConflictError(StoreError):
    """The thing is in a state, or has an owner, that does not allow this."""

    http_status = 409


class AccessError(StropError):
    """No key, a wrong or revoked one, or a link whose signature does not hold."""

    boundary = "access"
    http_status = 401


class ForbiddenError(AccessError):
    """A good key, but not for this."""

    http_status = 403


class RequestError(StropError):
    """A request that cannot be meant as it stands."""

    boundary = "request"
    http_status = 400


class TooLargeError(RequestError):
    """A body beyond its limit."""

    http_status = 413


class ThrottledError(RequestError):
    """Too much at once; the same request may succeed later."""

    http_status = 429


class UnavailableError(StropError):
    """The server cannot be reached, takes too long, or failed on a request."""

    boundary = "server"
    http_status = 503


class CheckpointError(StropError):
    """A checkpoint that is incomplete, damaged or of another kind."""

    boundary = "checkpoint"


class TrainingError(StropError):
    """The run cannot go on: too many failures in a step, or numbers that are not finite."""

    boundary = "training"


class StoppedByDiagnosis(TrainingError):
    """A finding that the job names in `diagnosis.stop_on` was made; the steps until then are saved."""

    boundary = "diagnosis"
