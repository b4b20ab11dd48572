"""A download under way -> words on how far it is, by the size of what has come. For `learners.models`."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from strop.locales import msg

_LOOK_S = 2.0
_MB = 1_000_000
_STEP_UNKNOWN = 100 * _MB
"""Between two words where nobody knows how much there is to come."""


class Growth:
    """Tells each tenth of `total` bytes, or each 100 MB where that is not known; the end speaks for itself.

    >>> growth = Growth(print, "fetching it", total=90 * _MB)
    >>> for size in (4, 10, 11, 40, 90):
    ...     growth.look(size * _MB)
    fetching it: 10 of 90 MB
    fetching it: 40 of 90 MB
    """

    def __init__(self, tell: Callable[[str], None], text: str, *, total: int | None) -> None:
        self._tell, self._text, self._total = tell, text, total
        self._step = _STEP_UNKNOWN if total is None else total // 10
        self._told = 0

    def look(self, size: int) -> None:
        if size - self._told < self._step or (self._total is not None and size >= self._total):
            return
        self._told = size
        now, total = size // _MB, None if self._total is None else self._total // _MB
        if total is None:
            self._tell(msg("{text}: {now} MB", text=self._text, now=now))
        else:
            self._tell(msg("{text}: {now} of {total} MB", text=self._text, now=now, total=total))


@contextmanager
def telling_growth(
    tell: Callable[[str], None],
    text: str,
    folder: Path,
    *,
    growing: str | None = None,
    total: int | None = None,
    look_s: float = _LOOK_S,
) -> Iterator[None]:
    """Tell `text`, then how large the largest file, with a `total`, or everything new in `folder` has become.

    `growing` is said instead of `text` from the second time on.

    Concurrency:
        `tell` is called in a thread of its own while the block runs, and not after it.
    """
    tell(text)
    growth, ended = Growth(tell, growing or text, total=total), threading.Event()
    before = 0 if total is not None else sum(_sizes(folder))

    def watch() -> None:
        while not ended.wait(look_s):
            sizes = _sizes(folder)
            growth.look(max(sizes, default=0) if total is not None else sum(sizes) - before)

    watching = threading.Thread(target=watch, name="growth", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


def _sizes(folder: Path) -> list[int]:
    """Of every file below it; those that vanish meanwhile have none, nor have folders that do."""
    sizes: list[int] = []
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(os.path.join(above, name))
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                sizes.append(found.st_size)
    return sizes
