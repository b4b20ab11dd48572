"""Environment and options -> how this server runs: one frozen value, read once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import URL

from strop.errors import ConfigError, Problem
from strop.locales import msg
from strop.store.home import home

KIB, MIB, GIB = 1024, 1024**2, 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much one request may bring.

    Units:
        *_bytes in bytes; `upload_url_s` seconds that an upload URL holds; `body_silence_s` seconds in which
        some of a body has to come.
    """

    body_bytes: int = 8 * MIB
    file_bytes: int = GIB
    bundle_bytes: int = 200 * MIB
    unpacked_bytes: int = GIB
    bundle_entries: int = 20_000
    upload_url_s: int = 900
    body_silence_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`public_url` is where clients reach the server; None takes what each request says.

    `database_url` and `storage_url` None mean the places that the environment names. `max_running_jobs`
    trainers work at once, others queue: one by default, because a trainer uses every core of the CPU. Each
    may die `max_deaths` times in a row without a new checkpoint. With `supervise` off no trainer is started:
    another server on the same store does that.

    A private server is kept by one command for itself, to look at what the store has: `own_key` is the key
    that it alone knows.
    """

    home: Path = field(default_factory=home)
    host: str = "127.0.0.1"
    port: int = 8080
    public_url: str | None = None
    database_url: str | None = None
    storage_url: str | None = None
    max_running_jobs: int = 1
    max_deaths: int = 3
    cancel_grace_s: float = 300.0
    supervise: bool = True
    own_key: str | None = field(default=None, repr=False)
    limits: Limits = Limits()

    @property
    def private(self) -> bool:
        return self.own_key is not None

    @property
    def database_place(self) -> str | URL:
        """Where the database is: as given, as the environment says, else in this home."""
        given = self.database_url or os.environ.get("STROP_DATABASE_URL")
        return given or URL.create("sqlite", database=str(self.home / "strop.db"))

    @property
    def storage_place(self) -> str:
        """Where the blobs are: as given, as the environment says, else in this home."""
        return self.storage_url or os.environ.get("STROP_STORAGE_URL") or str(self.home / "blobs")


def settings_from_environment(**given: object) -> Settings:
    """Settings by `STROP_PUBLIC_URL` and `STROP_MAX_RUNNING_JOBS`; what is given and not None wins.

    Raises:
        ConfigError: a value is invalid.
    """
    values: dict[str, object] = {
        "public_url": os.environ.get("STROP_PUBLIC_URL"),
        "max_running_jobs": _whole_number("STROP_MAX_RUNNING_JOBS", 1),
    }
    values |= {name: value for name, value in given.items() if value is not None}
    public_url = values["public_url"]
    if isinstance(public_url, str):
        if not public_url.startswith(("http://", "https://")):
            raise _wrong("STROP_PUBLIC_URL", public_url, "an address such as https://strop.example.com")
        values["public_url"] = public_url.rstrip("/")
    return Settings(**values)  # pyright: ignore[reportArgumentType]


def _whole_number(name: str, default: int) -> int:
    text = os.environ.get(name)
    if not text:
        return default
    if not text.isdigit() or int(text) < 1:
        raise _wrong(name, text, "a whole number from 1 on")
    return int(text)


def _wrong(name: str, found: str, expected: str) -> ConfigError:
    return ConfigError(
        "settings",
        [
            Problem(
                place=name,
                message=msg("found {found!r}", found=found),
                fix=msg("write {expected}", expected=expected),
            )
        ],
    )
