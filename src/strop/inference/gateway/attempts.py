"""(rollout, attempt) -> what was sampled there, from its opening until it is sealed.

Lives in the event loop's thread and takes no lock: nothing here awaits, so every change is whole.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import defaultdict, deque
from enum import StrEnum
from typing import TYPE_CHECKING

from strop.inference.chat.errors import attempt_ended, unknown_attempt, wrong_key
from strop.inference.chat.render import PrefixEntry
from strop.inference.gateway.idempotency import IdempotencyCache
from strop.schema.sampling import SamplingParams
from strop.schema.span import Span
from strop.schema.trajectory import Turn

if TYPE_CHECKING:
    from strop.inference.gateway.calls import Call

REMEMBERED = 65_536
"""Sealed attempts that still answer 409; older ones answer 404. An agent that calls so late is long gone."""


class AttemptState(StrEnum):
    OPEN = "open"
    SEALED = "sealed"


ALLOWED_MOVES: dict[AttemptState, frozenset[AttemptState]] = {
    AttemptState.OPEN: frozenset({AttemptState.SEALED}),
    AttemptState.SEALED: frozenset(),
}
"""The whole life cycle: what is not listed is a conflict."""


class Attempt:
    """One attempt at one rollout. Only its key opens its address; only while open does it sample."""

    def __init__(self, rollout_id: str, attempt_id: str, *, sampling: SamplingParams, training: bool) -> None:
        self.rollout_id = rollout_id
        self.attempt_id = attempt_id
        self.sampling = sampling
        self.training = training
        self.state = AttemptState.OPEN
        self.turns: list[Turn] = []
        self.known: list[PrefixEntry] = []
        self.calls: set[Call] = set()
        self.spans: list[Span] = []
        self.opened_ns = time.time_ns()
        self.replays = IdempotencyCache()
        self._slots: defaultdict[str, set[int]] = defaultdict(set)
        self._key_digest = b""

    def issue_key(self) -> str:
        """Make the attempt's only key; just its digest stays here."""
        key = secrets.token_urlsafe(24)
        self._key_digest = hashlib.sha256(key.encode()).digest()
        return key

    def check_key(self, key: str) -> None:
        digest = hashlib.sha256(key.encode()).digest()
        if not secrets.compare_digest(digest, self._key_digest):
            raise wrong_key()

    def check_open(self) -> None:
        if self.state is not AttemptState.OPEN:
            raise attempt_ended(self.rollout_id, self.attempt_id)

    def take_slot(self, prompt: str) -> int:
        """How many calls with this very prompt came before, calls that failed not counted."""
        taken = self._slots[prompt]
        slot = next(number for number in range(len(taken) + 1) if number not in taken)
        taken.add(slot)
        return slot

    def free_slot(self, prompt: str, slot: int) -> None:
        self._slots[prompt].discard(slot)

    def seal(self) -> tuple[Turn, ...]:
        """End the attempt: abort what is under way, give the turns, and keep nothing but the fact."""
        self.check_open()
        self.state = AttemptState.SEALED
        for call in list(self.calls):
            call.interrupt(attempt_ended(self.rollout_id, self.attempt_id))
        turns = tuple(self.turns)
        self.turns, self.known, self.replays = [], [], IdempotencyCache()
        self._slots.clear()
        return turns


class Attempts:
    """All attempts of a run, by rollout and attempt id."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, str], Attempt] = {}
        self._sealed: deque[tuple[str, str]] = deque()

    def open(self, rollout_id: str, attempt_id: str, *, sampling: SamplingParams, training: bool) -> Attempt:
        """Raises ValueError for ids that exist already or cannot stand in an address."""
        if not rollout_id or not attempt_id or "/" in attempt_id:
            raise ValueError(
                f"ids must not be empty, nor attempt ids hold a slash: {rollout_id!r}, {attempt_id!r}"
            )
        earlier = self._attempts.get((rollout_id, attempt_id))
        if earlier is not None:
            raise ValueError(f"attempt {attempt_id!r} of rollout {rollout_id!r} is already {earlier.state}")
        attempt = Attempt(rollout_id, attempt_id, sampling=sampling, training=training)
        self._attempts[rollout_id, attempt_id] = attempt
        return attempt

    def find(self, rollout_id: str, attempt_id: str) -> Attempt:
        """Raises RequestRefused (404) for an attempt nobody opened."""
        attempt = self._attempts.get((rollout_id, attempt_id))
        if attempt is None:
            raise unknown_attempt(rollout_id, attempt_id)
        return attempt

    def seal(self, rollout_id: str, attempt_id: str) -> tuple[Turn, ...]:
        turns = self.find(rollout_id, attempt_id).seal()
        self._sealed.append((rollout_id, attempt_id))
        if len(self._sealed) > REMEMBERED:
            del self._attempts[self._sealed.popleft()]
        return turns

    def seal_all(self) -> None:
        for attempt in list(self._attempts.values()):
            if attempt.state is AttemptState.OPEN:
                self.seal(attempt.rollout_id, attempt.attempt_id)
