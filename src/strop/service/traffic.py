"""Calls of one deployment -> counts, and the moment when none is under way."""

from __future__ import annotations

import asyncio
from collections import Counter


class Traffic:
    """What the proxy has counted for one deployment since the server started. Lives in one event loop."""

    def __init__(self) -> None:
        self.calls: Counter[int] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self) -> None:
        self.in_flight += 1
        self._idle.clear()

    def end(self) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self._idle.set()

    async def idle(self, *, within_s: float) -> bool:
        """Wait until no call is under way; False when one still is after `within_s` seconds."""
        try:
            await asyncio.wait_for(self._idle.wait(), within_s)
        except TimeoutError:
            return False
        return True
