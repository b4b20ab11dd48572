"""Text -> the same text without the secrets that are known to this process.

Masked by value: user code may print or raise anything, and only the value is certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager

_MIN_LENGTH = 8
"""Shorter values (`true`, `8000`, `EMPTY`) are no secrets, and masking them would eat ordinary text."""


class Mask:
    """The secrets of one function: its `runtime.env`, and the keys of the calls in flight."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = Counter(_parts(secrets))

    @contextmanager
    def hiding(self, *secrets: str) -> Generator[None]:
        """Hide more of them for a while."""
        added = _parts(secrets)
        self._secrets.update(added)
        try:
            yield
        finally:
            self._secrets.subtract(added)
            self._secrets = +self._secrets

    def __call__(self, text: str) -> str:
        """Put `***` for every secret, the longest first.

        >>> Mask(["secret-value"])("key=secret-value")
        'key=***'
        """
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text


def _parts(secrets: Iterable[str]) -> list[str]:
    """Each secret and, as text is masked line by line, each of its lines (a PEM key has many)."""
    return [part for secret in secrets for part in {secret, *secret.splitlines()} if len(part) >= _MIN_LENGTH]
