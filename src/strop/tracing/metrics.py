"""Name -> what it means: the one registry of metrics, and the gate that no undeclared name passes.

The trainer checks every name here, the documentation is made from here. A name may hold `<placeholders>`
where users name parts; those are limited in number, because each becomes a curve for good.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache

from strop.errors import StropError
from strop.locales import msg
from strop.schema.metric import Metric
from strop.tracing.catalogue import CATALOGUE

USER_NAME_LIMIT = 256
"""Names that users may choose in one run. A name with an id or a number in it would run past any limit."""

_log = logging.getLogger(__name__)

_PLACEHOLDER = re.compile(r"<[a-z]+>")


class UnknownMetricError(StropError, KeyError):
    """A name that no metric was declared under."""

    boundary = "metrics"


def all_metrics() -> tuple[Metric, ...]:
    """Every declared metric, in reading order."""
    return CATALOGUE


@lru_cache(maxsize=4096)
def metric(name: str) -> Metric:
    """The declaration behind a name; `trace/reward/accuracy/avg` gives that of `trace/reward/<name>/avg`.

    Raises:
        UnknownMetricError: it is not declared; the message has the nearest declared name.
    """
    declared = _by_name().get(name) or _matching(name)
    if declared is None:
        nearest = get_close_matches(name, list(_by_name()), n=1, cutoff=0.0)
        raise UnknownMetricError(
            msg("metric {name!r} is not declared", name=name),
            fix=msg("the nearest declared name is {nearest!r}", nearest=nearest[0]),
        )
    return declared


def is_user_named(name: str) -> bool:
    """Whether a part of it was chosen by a user."""
    return "<" in metric(name).name


def check_names(names: Iterable[str]) -> None:
    """Refuse undeclared names. A mapping of values may be passed, too.

    Raises:
        UnknownMetricError: the first undeclared one.
    """
    for name in names:
        metric(name)


class NameGate:
    """Lets declared names through, and only so many user-chosen ones. One a run.

    `admitted` are the user-chosen ones so far; a resumed run continues with those of its checkpoint.
    """

    def __init__(self, *, limit: int = USER_NAME_LIMIT, admitted: Iterable[str] = ()) -> None:
        self._limit = limit
        self._admitted = set(admitted)
        self._warned = False

    @property
    def admitted(self) -> list[str]:
        return sorted(self._admitted)

    def admit(self, values: Mapping[str, float]) -> dict[str, float]:
        """The values that may be recorded. The first user-chosen name past the limit is logged, once a run.

        Raises:
            UnknownMetricError: an undeclared name.
        """
        return {name: value for name, value in values.items() if self._admits(name)}

    def _admits(self, name: str) -> bool:
        if not is_user_named(name) or name in self._admitted:
            return True
        if len(self._admitted) < self._limit:
            self._admitted.add(name)
            return True
        if not self._warned:
            self._warned = True
            _log.warning(
                "more than %d metric names were chosen by functions; %r and all further new ones are not "
                "recorded. Put ids and numbers into values, not into names",
                self._limit,
                name,
            )
        return False


@cache
def _by_name() -> dict[str, Metric]:
    names = [declared.name for declared in CATALOGUE]
    assert len(set(names)) == len(names), "a metric is declared twice"
    return {declared.name: declared for declared in CATALOGUE}


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], Metric], ...]:
    """Strict ones first (a placeholder is one segment); then those whose user-chosen part holds slashes."""
    open_named = [declared for declared in CATALOGUE if "<" in declared.name]
    return tuple(
        (_pattern(declared.name, filler), declared) for filler in ("[^/]+", ".+") for declared in open_named
    )


def _pattern(name: str, filler: str) -> re.Pattern[str]:
    return re.compile(filler.join(re.escape(part) for part in _PLACEHOLDER.split(name)))


def _matching(name: str) -> Metric | None:
    return next((declared for pattern, declared in _patterns() if pattern.fullmatch(name)), None)
