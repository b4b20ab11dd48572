"""Signatures and tokens -> whether this server made them. One secret, in a file that only its owner reads."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import secrets
import time
from pathlib import Path

from strop.errors import StoreError
from strop.locales import msg

FILE = "server_secret"


class Signer:
    """Signs what goes out and comes back: upload URLs and the tokens of function instances."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def token(self, purpose: str, *parts: str) -> str:
        """An unguessable text that is always the same for the same parts.

        >>> Signer(b"k").token("instance", "ins-1") == Signer(b"k").token("instance", "ins-1")
        True
        >>> Signer(b"k").token("a", "b", "c") == Signer(b"k").token("a", "bc")
        False
        """
        text = "\0".join((purpose, *parts)).encode("utf-8", "surrogatepass")
        digest = hmac.new(self._secret, text, hashlib.sha256).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()

    def holds(self, given: str, purpose: str, *parts: str) -> bool:
        expected = self.token(purpose, *parts)
        return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())

    def expiring(self, purpose: str, *parts: str, seconds: int) -> tuple[int, str]:
        """When a signature ends (seconds since 1970), and the signature."""
        expires = int(time.time()) + seconds
        return expires, self.token(purpose, *parts, str(expires))

    def holds_until(self, given: str, expires: str, purpose: str, *parts: str) -> bool:
        if not expires.isascii() or not expires.isdigit() or len(expires) > 12:
            return False
        return self.holds(given, purpose, *parts, expires) and int(expires) >= time.time()


def open_signer(folder: Path) -> Signer:
    """The signer of this home; its secret is made at the first start.

    Raises:
        StoreError: the file cannot be read or made.
    """
    path = folder / FILE
    with contextlib.suppress(FileExistsError):
        write_private(path, secrets.token_hex(32))
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise StoreError(
            msg("cannot read {path!r}: {strerror}", path=str(path), strerror=error.strerror),
            fix=msg("give this user the right to"),
        ) from error
    if len(text) < 32:
        raise StoreError(
            msg("{path!r} is damaged", path=str(path)),
            fix=msg("remove it; upload URLs and tokens made before end then"),
        )
    return Signer(text.encode())


def write_private(path: Path, text: str) -> None:
    """Make a file that only its owner may read; it appears whole.

    Raises:
        FileExistsError: there is one already. StoreError: it cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
        try:
            os.link(part, path)
        finally:
            part.unlink()
    except FileExistsError:
        raise
    except OSError as error:
        raise StoreError(
            msg("cannot write {path!r}: {strerror}", path=str(path), strerror=error.strerror),
            fix=msg("set STROP_HOME to a folder that can be written"),
        ) from error
