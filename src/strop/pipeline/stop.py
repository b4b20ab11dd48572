"""Ctrl-C -> an orderly end: a flag that the loop looks at between two phases."""

from __future__ import annotations


class Stopped(Exception):
    """The run was asked to end."""


class StopFlag:
    """Asks a run to end after its current phase; `set` may come from a signal handler or another thread."""

    def __init__(self) -> None:
        self._asked = False

    def set(self) -> None:
        self._asked = True

    def check(self) -> None:
        """Raises:
        Stopped: `set` has been called.
        """
        if self._asked:
            raise Stopped
