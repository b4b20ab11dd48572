"""A repeated call -> the answer it already got.

OpenAI's clients repeat a call after a time-out, a broken connection or a 5xx, and mark the repetition. If
the first try was answered, its tokens are captured and the repetition gets the same answer: one generation,
one turn. If the first try failed, nothing was captured and the repetition is sampled.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strop.inference.chat.errors import RequestRefused
from strop.locales import msg


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What makes two calls one: equal bodies and, where the client sends it, an equal Idempotency-Key."""

    key: str | None
    body: str
    is_retry: bool = False

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> Identity:
        retries = headers.get("x-stainless-retry-count", "0")
        return cls(
            key=headers.get("idempotency-key"),
            body=hashlib.sha256(body).hexdigest(),
            is_retry=retries.isdecimal() and int(retries) > 0,
        )

    @property
    def may_repeat(self) -> bool:
        return self.is_retry or self.key is not None

    @property
    def call(self) -> tuple[str | None, str]:
        return self.key, self.body


class IdempotencyCache:
    """The answers of one attempt, by the identity of their calls."""

    def __init__(self) -> None:
        self._replies: dict[tuple[str | None, str], dict[str, Any]] = {}
        self._owed: Counter[tuple[str | None, str]] = Counter()
        self._body_of_key: dict[str, str] = {}

    def reply_to(self, identity: Identity) -> dict[str, Any] | None:
        """The earlier answer to this call; None if it is to be sampled.

        Of several equal calls at once, one may fail and be repeated while another was answered: a failure is
        owed a fresh sample, so that its repetition does not get the other's.

        Raises:
            RequestRefused: the Idempotency-Key came before with another body.
        """
        if (
            identity.key is not None
            and self._body_of_key.setdefault(identity.key, identity.body) != identity.body
        ):
            raise RequestRefused(
                msg("this Idempotency-Key was used before with another body; use a new key for a new call"),
                code="idempotency_key_reused",
            )
        if not identity.may_repeat:
            return None
        if self._owed[identity.call]:
            self._owed[identity.call] -= 1
            return None
        return self._replies.get(identity.call)

    def answered(self, identity: Identity, reply: dict[str, Any]) -> None:
        self._replies[identity.call] = reply

    def failed(self, identity: Identity) -> None:
        self._owed[identity.call] += 1
