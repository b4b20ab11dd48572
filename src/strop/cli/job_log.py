"""What our own modules log -> lines of the job, beside those of its functions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager


class _Lines(logging.Handler):
    def __init__(self, on_line: Callable[[str, str, str], None]) -> None:
        super().__init__(logging.INFO)
        self._on_line = on_line

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record).splitlines():
            self._on_line("trainer", "stderr", f"{record.levelname} {line}")


@contextmanager
def logging_to(on_line: Callable[[str, str, str], None]) -> Generator[None]:
    """While the block runs, everything logged below `strop` becomes lines of component `trainer`."""
    logger, lines = logging.getLogger("strop"), _Lines(on_line)
    logger.addHandler(lines)
    try:
        yield
    finally:
        logger.removeHandler(lines)
