"""Spans that were stored -> another OTLP backend, where the standard environment variables name one.

Best effort, on a bounded queue: a backend that is slow or dead costs spans there, never here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from gzip import compress
from urllib.parse import unquote

import httpx

from strop.errors import ConfigError, Problem
from strop.locales import msg

_log = logging.getLogger(__name__)

QUEUE_LIMIT = 256
"""Batches that wait; more are dropped, and counted."""

FORWARDED = "x-strop-forwarded"
"""A header on everything sent on. What carries it has gone far enough: two servers that name one another, or
one that names itself, would send it round for ever."""

_TRIES = 3
_FIRST_PAUSE_S = 0.5
_DEFAULT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Where spans go on to. `headers` may hold secrets."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float
    gzip: bool


def backend_from_environment(environ: Mapping[str, str] = os.environ) -> Backend | None:
    """By OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and their kin; None without
    either.

    The general endpoint gets `/v1/traces` appended, the one of traces is used as it is.

    Raises:
        ConfigError: a protocol other than HTTP with protobuf, or a value that is none.
    """
    own = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    general = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    url = own or (f"{general.rstrip('/')}/v1/traces" if general else None)
    if url is None or environ.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return None

    def setting(name: str) -> tuple[str, str | None]:
        of_traces = f"OTEL_EXPORTER_OTLP_TRACES_{name}"
        place = of_traces if environ.get(of_traces) else f"OTEL_EXPORTER_OTLP_{name}"
        return place, environ.get(place)

    problems: list[Problem] = []
    if not url.startswith(("http://", "https://")):
        found = _without_user(url)
        problems.append(
            Problem(
                place="OTEL_EXPORTER_OTLP_ENDPOINT",
                message=msg("found {found!r}", found=found),
                fix=msg("write http://..."),
            )
        )
    place, protocol = setting("PROTOCOL")
    if protocol not in (None, "http/protobuf"):
        problems.append(
            Problem(
                place=place,
                message=msg("found {protocol!r}", protocol=protocol),
                fix=msg("only http/protobuf is spoken here"),
            )
        )
    place, compression = setting("COMPRESSION")
    if compression not in (None, "gzip", "none"):
        problems.append(
            Problem(
                place=place,
                message=msg("found {compression!r}", compression=compression),
                fix=msg("write gzip or none"),
            )
        )
    place, given_timeout = setting("TIMEOUT")
    timeout_s = _DEFAULT_TIMEOUT_S
    if given_timeout is not None:
        try:
            timeout_s = float(given_timeout)
        except ValueError:
            problems.append(
                Problem(
                    place=place,
                    message=msg("found {given_timeout!r}", given_timeout=given_timeout),
                    fix=msg("write seconds"),
                )
            )
    if problems:
        raise ConfigError("forwarding of spans", problems)
    headers = _headers(setting("HEADERS")[1] or "")
    return Backend(url=url, headers=headers, timeout_s=timeout_s, gzip=compression == "gzip")


def refuse_own_address(backend: Backend, *, host: str, port: int) -> None:
    """Raises:
    ConfigError: the backend is the server at `host` and `port` that would send to it.
    """
    url = httpx.URL(backend.url)
    there = url.port or {"http": 80, "https": 443}[url.scheme]
    if there == port and url.host in {host, "localhost", "127.0.0.1", "::1"}:
        own = Problem(
            place="OTEL_EXPORTER_OTLP_ENDPOINT",
            message=msg("{without_user} is this server itself", without_user=_without_user(backend.url)),
            fix=msg("name another backend, or unset it for the server"),
        )
        raise ConfigError("forwarding of spans", [own])


class Forwarding:
    """Sends batches on, one after another.

    Concurrency:
        Belongs to one event loop.
    """

    def __init__(self, backend: Backend, *, client: httpx.AsyncClient | None = None) -> None:
        self._backend = backend
        self._client = client or httpx.AsyncClient(timeout=backend.timeout_s)
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue(QUEUE_LIMIT)
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self.sent = 0
        self.dropped = 0

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def put(self, batch: bytes) -> None:
        """Accept a batch, or drop it when too many wait already."""
        try:
            self._waiting.put_nowait(batch)
        except asyncio.QueueFull:
            self._lost("too many batches wait")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._client.aclose()

    async def _run(self) -> None:
        while True:
            await self._send(await self._waiting.get())

    async def _send(self, batch: bytes) -> None:
        content = compress(batch, 1) if self._backend.gzip else batch
        headers = {**self._backend.headers, "content-type": "application/x-protobuf", FORWARDED: "1"}
        if self._backend.gzip:
            headers["content-encoding"] = "gzip"
        why = ""
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE_S * 2**attempt)
            try:
                answer = await self._client.post(self._backend.url, content=content, headers=headers)
            except httpx.HTTPError as error:
                why = f"{type(error).__name__}: {error}"
                continue
            if answer.is_success:
                self._went_on()
                return
            why = f"HTTP {answer.status_code}"
            if answer.status_code not in (429, 502, 503, 504):
                break
        self._lost(why)

    def _went_on(self) -> None:
        self.sent += 1
        if self._failing:
            self._failing = False
            _log.warning("spans go on to %s again", _without_user(self._backend.url))

    def _lost(self, why: str) -> None:
        self.dropped += 1
        if not self._failing:
            self._failing = True
            _log.warning("spans are not passed on to %s: %s", _without_user(self._backend.url), why)


def _without_user(url: str) -> str:
    """Where it leads; the password, if it has one, is nobody's business."""
    return re.sub(r"^(\w+://)?[^/?#]*@", r"\1", url)


def _headers(text: str) -> dict[str, str]:
    """`key=value,key=value`, values with percent signs."""
    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {key.strip().lower(): unquote(value.strip()) for key, _, value in pairs}
