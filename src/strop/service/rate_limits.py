"""Calls and tokens of the last minute -> whether one more call may come, or after how many seconds.

Exact sliding windows: a limit of 60 calls a minute lets 60 through at once and the next one when the first is
a minute old. Tokens are known only when an answer ends, so a call is let through while the minute's sum is
below the limit. Lives in one event loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 60.0


class Window:
    """Amounts of the last `WINDOW_S` seconds and their sum."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._amounts: deque[tuple[float, int]] = deque()
        self._sum = 0

    def add(self, amount: int) -> None:
        self._amounts.append((self._clock(), amount))
        self._sum += amount

    def wait_s(self, limit: int) -> float:
        """Seconds until the sum is below `limit`; 0 when it is."""
        self._forget()
        rest, now = self._sum, self._clock()
        if rest < limit:
            return 0.0
        for at, amount in self._amounts:
            rest -= amount
            if rest < limit:
                return max(0.0, at + WINDOW_S - now)
        return WINDOW_S

    def _forget(self) -> None:
        horizon = self._clock() - WINDOW_S
        while self._amounts and self._amounts[0][0] <= horizon:
            self._sum -= self._amounts.popleft()[1]


class RateLimits:
    """The two limits of one deployment; None is without."""

    def __init__(
        self, *, rpm: int | None, tpm: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rpm, self.tpm = rpm, tpm
        self._calls, self._tokens = Window(clock), Window(clock)

    def refusal(self) -> tuple[str, float] | None:
        """Which limit is reached, and the seconds until it is not; None lets a call come and counts it."""
        waits = [
            (f"{limit} {unit} a minute", window.wait_s(limit))
            for limit, unit, window in ((self.rpm, "calls", self._calls), (self.tpm, "tokens", self._tokens))
            if limit is not None
        ]
        longest = max(waits, key=lambda one: one[1], default=("", 0.0))
        if longest[1] > 0:
            return longest
        if self.rpm is not None:
            self._calls.add(1)
        return None

    def used(self, num_tokens: int) -> None:
        """Count the tokens of an answer that has ended."""
        if self.tpm is not None and num_tokens:
            self._tokens.add(num_tokens)
