"""Measured seconds -> medians, ratios, tables, the machine: what an entry of `docs/log.md` is made of.

Pure functions of values, but for `machine`, which looks at this one.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import TypeVar

GIB = 1024.0**3
Result = TypeVar("Result")


def alternate(names: Sequence[str], run: Callable[[str], Result], *, rounds: int) -> dict[str, list[Result]]:
    """Run every name once a round, every second round in reverse: a drift of the machine favours nobody.

    >>> alternate(["a", "b"], str.upper, rounds=2)
    {'a': ['A', 'A'], 'b': ['B', 'B']}
    """
    results: dict[str, list[Result]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            results[name].append(run(name))
    return results


def round_ratios(slower: Sequence[float], faster: Sequence[float]) -> list[float]:
    """How many times `faster` beat `slower`, round by round: neighbours in time share the machine's mood.

    Units:
        Both in seconds.
    """
    if len(slower) != len(faster):
        raise ValueError(f"rounds differ: {len(slower)} and {len(faster)}")
    return [one / other for one, other in zip(slower, faster, strict=True)]


def spread(values: Sequence[float], digits: int = 1) -> str:
    """The median, with the range where there is more than one value.

    >>> spread([3.0, 1.0, 2.0]), spread([1.25], 2)
    ('2.0 (1.0-3.0)', '1.25')
    """
    middle = f"{median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others numbers.

    >>> print(table(["who", "s"], [["TRL", "9"]]))
    | who | s |
    |---|--:|
    | TRL | 9 |
    """
    lines = [list(head), *[list(row) for row in rows]]
    if len({len(line) for line in lines}) > 1:
        raise ValueError(f"rows of different length: {lines}")
    drawn = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([drawn[0], "|---|" + "--:|" * (len(head) - 1), *drawn[1:]])


def verdict(what: str, found: float, target: float, *, unit: str = "", at_least: bool = True) -> str:
    """One line of the list of targets.

    >>> verdict("step against TRL", 2.0, 3.0, unit="x")
    '* step against TRL: 2.00x, target at least 3x: **missed** by a factor of 1.50'
    """
    met = found >= target if at_least else found <= target
    factor = target / found if at_least else found / target
    said = "met" if met else f"**missed** by a factor of {factor:.2f}"
    bound = "at least" if at_least else "at most"
    return f"* {what}: {found:.2f}{unit}, target {bound} {target:g}{unit}: {said}"


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    return {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    }


def _processor() -> str:
    """Its name, which virtual machines hide; so family, model and vector instructions stand beside it."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = set(fields.get("flags", "").split())
    vectors = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    numbers = f"family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}"
    return f"{fields.get('model name', platform.machine())} ({numbers}; {', '.join(vectors) or 'no AVX'})"


def load_average() -> float:
    """Running processes of the last minute: before a run, what would disturb it."""
    return os.getloadavg()[0]
