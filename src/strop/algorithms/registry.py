"""Name -> Algorithm: the built-in records and those that installed packages declare.

Built-in names are found without looking at installed packages, so that importing `strop` stays cheap.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from strop.algorithms.builtin import BUILTIN
from strop.algorithms.record import Algorithm
from strop.errors import StropError
from strop.locales import msg

GROUP = "strop.algorithms"
"""The entry point group of plugins."""

_BUILTIN = {item.name: item for item in BUILTIN}


class AlgorithmError(StropError):
    """A name that stands for no algorithm, or a plugin that cannot be used."""

    boundary = "algorithms"
    http_status = 400


def algorithm(name: str) -> Algorithm:
    """The record of a name.

    Raises:
        AlgorithmError: no such algorithm, with the nearest that is; or a plugin is broken.
    """
    found = _BUILTIN.get(name) or _plugins(tuple(sys.path)).get(name)
    if found is not None:
        return found
    near = nearest_name(name)
    raise AlgorithmError(
        msg(
            "unknown algorithm {name!r}; known: {algorithm_names}",
            name=name,
            algorithm_names=", ".join(algorithm_names()),
        ),
        fix=f"did you mean {near!r}?"
        if near
        else "choose one of these, or install the package that brings it",
    )


def algorithm_names() -> tuple[str, ...]:
    """Every name, the default first, plugins last."""
    return (*_BUILTIN, *_plugins(tuple(sys.path)))


def nearest_name(name: str) -> str | None:
    """The known name that was probably meant.

    >>> nearest_name("gsop")
    'gspo'
    """
    near = difflib.get_close_matches(name.lower(), algorithm_names(), n=1)
    return near[0] if near else None


def bound_knobs() -> frozenset[str]:
    """Hyper-parameters that only some of the built-in algorithms read."""
    return _bound_knobs()


def load_named(reference: str) -> Callable[..., Any]:
    """The function behind `module:function`.

    Raises:
        AlgorithmError: the module cannot be imported or has no such function.
    """
    module, _, name = reference.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise AlgorithmError(
            msg("{reference!r} cannot be loaded: {error}", reference=reference, error=error),
            fix=msg("name an importable module and a function in it"),
        ) from error
    if not callable(found):
        raise AlgorithmError(
            msg("{reference!r} is no function but {found!r}", reference=reference, found=found)
        )
    return found


@cache
def _bound_knobs() -> frozenset[str]:
    return frozenset[str]().union(*(item.knobs for item in BUILTIN))


@lru_cache(maxsize=4)
def _plugins(path: tuple[str, ...]) -> dict[str, Algorithm]:
    """What is declared on the import path `path`; another path is looked at anew."""
    found: dict[str, Algorithm] = {}
    for point in entry_points(group=GROUP):
        for item in _declared(point):
            if item.name in _BUILTIN or item.name in found:
                raise AlgorithmError(
                    msg(
                        "{origin} declares {name!r}, a name that is taken",
                        origin=_origin(point),
                        name=item.name,
                    ),
                    fix=msg("rename the algorithm there"),
                )
            found[item.name] = item
    return found


def _declared(point: EntryPoint) -> list[Algorithm]:
    """One record or several."""
    try:
        value: object = point.load()
    except Exception as error:
        raise AlgorithmError(
            msg(
                "{origin} cannot be loaded: {name}: {error}",
                origin=_origin(point),
                name=type(error).__name__,
                error=error,
            ),
            fix=msg("fix or uninstall that package"),
        ) from error
    items = [value] if isinstance(value, Algorithm) else value
    if not isinstance(items, Iterable):
        raise _no_record(point, items)
    several = list(cast("Iterable[object]", items))
    for item in several:
        if not isinstance(item, Algorithm):
            raise _no_record(point, item)
    return cast("list[Algorithm]", several)


def _no_record(point: EntryPoint, found: object) -> AlgorithmError:
    return AlgorithmError(
        msg("{origin} is no Algorithm but {found!r}", origin=_origin(point), found=found),
        fix=msg("point it at a strop.algorithms.Algorithm"),
    )


def _origin(point: EntryPoint) -> str:
    package = point.dist.name if point.dist is not None else "?"
    return f"entry point {point.name!r} = {point.value!r} of the package {package!r}"
