"""Bytes of a pipe -> lines of text, each bounded, whatever comes.

>>> LineSplitter(mask=str).feed(b"one" + bytes([10]) + b"two")
['one']
"""

from __future__ import annotations

from collections.abc import Callable

MAX_LINE_BYTES = 16 * 1024
_SLACK = 4096
"""Kept beyond the limit until the line is masked, so that a secret is not cut in two before it is seen."""


class LineSplitter:
    """Collects chunks; gives complete lines. Of a progress bar's line it gives what a terminal shows last."""

    def __init__(self, *, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self._rest = bytearray()
        self._num_bytes = 0

    def feed(self, chunk: bytes) -> list[str]:
        """Returns the lines that `chunk` completed."""
        *ended, rest = chunk.split(b"\n")
        lines: list[str] = []
        for part in ended:
            self._add(part)
            lines.append(self._take())
        self._add(rest)
        return lines

    def end(self) -> list[str]:
        """Returns the last line, when it did not end with a newline."""
        return [self._take()] if self._rest else []

    def _add(self, part: bytes) -> None:
        self._num_bytes += len(part)
        self._rest += part[: MAX_LINE_BYTES + _SLACK - len(self._rest)]

    def _take(self) -> str:
        kept = bytes(self._rest).rstrip(b"\r").rpartition(b"\r")[2]
        num_bytes, self._num_bytes = self._num_bytes, 0
        self._rest.clear()
        text = self._mask(kept.decode("utf-8", "replace"))
        if num_bytes <= MAX_LINE_BYTES:
            return text
        return f"{text[:MAX_LINE_BYTES]} ... (cut; the line has {num_bytes} bytes)"
