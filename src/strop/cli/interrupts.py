"""Ctrl-C -> what a command does about it, in each of its phases. Never a traceback, always exit status 130."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

from strop.cli.text import t

EXIT_CANCELED = 130
"""As a shell reports a program ended by Ctrl-C."""

_HEARD = (signal.SIGINT, signal.SIGTERM)


def interrupted_text() -> str:
    return t("interrupted")


def ending_text() -> str:
    """Said at the first Ctrl-C: true before the first step, too."""
    return t(
        "ending: every finished step is kept, what is being sampled is dropped; once more to end at once"
    )


@contextmanager
def leaving_at_once() -> Generator[None]:
    """While the block runs nothing has begun that must be ended in order: Ctrl-C ends the process there and then.

    An import that an exception cuts in two says all sorts of things; so there is no exception.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # a shell starts what it puts in the background deaf
        yield
        return
    signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def leave_from_now_on() -> None:
    """The command is over, and Python ends: what it would say of an exception there is no word for people."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _leave)


class Interrupts:
    """Ctrl-C or SIGTERM while a command begins a job of its own and watches it.

    Before the job is there, the first is remembered for `check`, the second ends the process. From `steer` on,
    the first and the second do what they are told there, in a thread, for the main one is reading. From
    `rest` on they are what Python makes of them.
    """

    def __init__(self, said_first: Callable[[], None]) -> None:
        self._said_first = said_first
        self._count = 0
        self._steps: tuple[Callable[[], None], Callable[[], None]] | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._interrupted) for number in _HEARD}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """
        Raises:
            KeyboardInterrupt: there was one, and nothing has begun yet.
        """
        if self._count:
            raise KeyboardInterrupt

    def steer(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        """From here on a job trains."""
        self._steps = first, second
        if self._count:
            self._do(first, self._said_first)

    def rest(self) -> None:
        """The job has ended."""
        for number in _HEARD:
            signal.signal(number, signal.default_int_handler)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._steps is None:
            if self._count > 1:
                _leave(number, frame)
        elif self._count == 1:
            self._do(self._steps[0], self._said_first)
        else:
            self._do(self._steps[1], lambda: None)

    def _do(self, step: Callable[[], None], say: Callable[[], None]) -> None:
        say()
        threading.Thread(target=step, daemon=True).start()


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, f"\n{interrupted_text()}\n".encode())
    os._exit(EXIT_CANCELED)
