"""How many answers may be under way or waiting at once: beyond it a caller is told to come back.

A queue without an end only moves the time-out to the client. Lives in one event loop and takes no lock.
"""

from __future__ import annotations

from strop.inference.gateway.errors import RequestRefused

_WEIGHT = 0.2
"""Of the newest answer in the running mean of their durations."""

_FIRST_GUESS_S = 1.0
_LONGEST_WAIT_S = 60.0


class Places:
    """`num_running` answers are sampled together, `num_waiting` more may wait."""

    def __init__(self, *, num_running: int, num_waiting: int) -> None:
        self.num_running = num_running
        self._limit = num_running + num_waiting
        self._mean_s = _FIRST_GUESS_S
        self.taken = 0

    def check(self, count: int) -> None:
        """Raises:
        RequestRefused: 400 for more than there will ever be.
        """
        if count > self._limit:
            raise RequestRefused(f"n = {count}: at most {self._limit} choices are sampled here", param="n")

    def take(self, count: int) -> None:
        """Raises:
        RequestRefused: 429 with the seconds after which a place should be free.
        """
        excess = self.taken + count - self._limit
        if excess > 0:
            raise RequestRefused(
                f"{self.taken} answers are under way or waiting, as many as can; try again later",
                status=429,
                code="queue_full",
                retry_after_s=min(_LONGEST_WAIT_S, self._mean_s * max(excess / self.num_running, 1.0)),
            )
        self.taken += count

    def free(self, count: int) -> None:
        self.taken -= count

    def took(self, seconds: float) -> None:
        """Learn how long an answer takes."""
        self._mean_s += _WEIGHT * (seconds - self._mean_s)
