"""Lines of a job's event stream -> typed items, each told once however often the connection is made anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from strop.client.wire import unreachable
from strop.errors import UnavailableError
from strop.locales import msg
from strop.schema.responses import JobInfo, StreamItem, stream_item

MAX_SILENT_TRIES = 6
"""Connections in a row that fail before they say anything new."""


class Follower:
    """A server tells a stream from its beginning again; what was told is left out."""

    def __init__(self) -> None:
        self.ended = False
        self.failures = 0
        self._told: set[int] = set()
        self._is_error = False

    def read(self, line: str) -> Iterator[StreamItem]:
        """
        Raises:
            UnavailableError: the server says that it cannot go on.
        """
        name, _, value = line.partition(":")
        if name == "event":
            self._is_error = value.strip() == "error"
        if name != "data":
            return
        if self._is_error:
            raise UnavailableError(msg("the stream ended with an error: {value}", value=value.strip()))
        mark = hash(value)
        if mark in self._told:
            return
        self._told.add(mark)
        self.failures = 0
        parsed = _parsed(value)
        item = stream_item(parsed) if parsed is not None else None
        if item is None:
            return
        if isinstance(item, JobInfo) and item.status.final:
            self.ended = True
        yield item

    def wait_s(self, url: str, reason: str) -> float:
        """Seconds until the next connection.

        Raises:
            UnavailableError: too many in a row said nothing new.
        """
        self.failures += 1
        if self.failures > MAX_SILENT_TRIES:
            raise unreachable(url, reason)
        return min(0.25 * 2 ** (self.failures - 1), 5.0)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        value: object = json.loads(text)
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
