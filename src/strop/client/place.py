"""Argument, environment, running server -> where the control plane is and the key that opens it.

Looked up when a client is made, never at import, so that two clients of one process may differ.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from strop.errors import AccessError, ConfigError, Problem, UnavailableError
from strop.locales import msg
from strop.processes.mark import ProcessMark, is_gone
from strop.store.home import KEY_FILE, SERVER_FILE, home

API = "/api/v1"
URL_VARIABLE = "STROP_URL"
KEY_VARIABLE = "STROP_API_KEY"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`url` is without a trailing slash and without `/api/v1`."""

    url: str
    api_key: str = field(repr=False)

    @property
    def api(self) -> str:
        return self.url + API

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine; then no proxy of the environment is asked."""
        return is_loopback(self.url)


def find_place(base_url: str | None = None, api_key: str | None = None) -> Place:
    """The argument, else the environment, else the server that runs in this home.

    Raises:
        ConfigError: an invalid address. UnavailableError: no server is named and none runs here.
        AccessError: no key; nothing has been sent.
    """
    given = base_url or os.environ.get(URL_VARIABLE)
    url = clean_url(given) if given else running_server()
    if url is None:
        raise UnavailableError(
            msg("no server is named, and none runs here"),
            fix=msg("start one with `strop up`, or set {url_variable}", url_variable=URL_VARIABLE),
        )
    key = api_key or os.environ.get(KEY_VARIABLE) or (_first_key() if is_loopback(url) else None)
    if not key:
        raise AccessError(
            msg("no API key for {url}", url=url),
            fix=msg("set {key_variable}, or give api_key=", key_variable=KEY_VARIABLE),
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise AccessError(
            msg("the API key is invalid: it contains blanks or unusual characters"),
            fix=msg("check {key_variable}", key_variable=KEY_VARIABLE),
        )
    return Place(url=url, api_key=key)


def clean_url(text: str) -> str:
    """
    >>> clean_url("http://127.0.0.1:8080/api/v1/")
    'http://127.0.0.1:8080'
    """
    url = text.strip().rstrip("/").removesuffix(API).rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        problem = Problem(
            place=URL_VARIABLE,
            message=msg("{text!r} is no address", text=text),
            fix=msg("e.g. http://127.0.0.1:8080"),
        )
        raise ConfigError("server", [problem])
    return url


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in _LOOPBACK or host.startswith("127.")


def is_named(base_url: str | None) -> bool:
    """Whether the argument or the environment says where the server is."""
    return bool(base_url or os.environ.get(URL_VARIABLE))


def running_server() -> str | None:
    """The address that the server of this home wrote down; None where its process has surely ended."""
    try:
        said: object = json.loads((home() / SERVER_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    told = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    url, process = told.get("url"), told.get("process")
    if isinstance(process, str) and is_gone(ProcessMark.read(process)):
        return None
    return clean_url(url) if isinstance(url, str) else None


def _first_key() -> str | None:
    """The first key of the server of this home; it is sent to this machine only."""
    try:
        return (home() / KEY_FILE).read_text(encoding="utf-8").strip() or None
    except (OSError, ValueError):
        return None
