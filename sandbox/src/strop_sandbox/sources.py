"""A URL of test cases -> its bytes, streamed to a file: from where it is allowed, as many as are allowed.

A request names the URL, so it must not be a way into the server's own network or files: hosts whose address
is private, local or of a cloud's metadata service are refused unless they are on the list, redirects are
checked like first addresses, and what was checked is what is connected to (no second look-up).
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import socket
import zlib
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast
from urllib.parse import urljoin, urlsplit

import httpx

from strop_sandbox.errors import RequestError, TooLargeError, UnavailableError

_OK, _NOT_MODIFIED = 200, 304
_REDIRECTS = 5
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_CHUNK = 1 << 20
_NAT64, _COMPATIBLE = ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """`hosts` names hosts (or host:port) or prefixes of other URLs (`file:///data/tests/`, `s3://bucket/`).

    With no host named, every public one is allowed over http(s); other kinds of URL only by prefix.
    """

    hosts: tuple[str, ...] = ()
    max_bytes: int = 4 * 2**30

    def is_named(self, url: str) -> bool:
        parts = urlsplit(url)
        if parts.scheme in ("http", "https"):
            return parts.hostname in self.hosts or parts.netloc.rpartition("@")[2] in self.hosts
        prefixes = [host for host in self.hosts if "://" in host]
        return ".." not in parts.path.split("/") and any(url.startswith(prefix) for prefix in prefixes)

    @property
    def names_hosts(self) -> bool:
        return any("://" not in host for host in self.hosts)


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was written: its hash; None where the source says that it is what `etag` named before."""

    sha256: str | None
    etag: str | None


async def fetch(url: str, allowed: Allowed, target: Path, etag: str | None = None) -> Fetched:
    """Write what the URL holds to `target`.

    Raises:
        RequestError: the URL is not allowed, or there is nothing; TooLargeError: more than `max_bytes`;
        UnavailableError: the source does not answer.
    """
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https"):
        return await _fetch_http(url, allowed, target, etag)
    if not allowed.is_named(url):
        raise RequestError(
            f"tests may not be read from {url!r}",
            fix="start the sandbox with --allow and a prefix of the URL",
        )
    try:
        return await asyncio.to_thread(_fetch_fsspec, url, allowed, target)
    except FileNotFoundError as error:
        raise RequestError(f"no tests at {url!r}") from error
    except (OSError, ImportError, ValueError) as error:
        raise UnavailableError(f"tests cannot be read from {url!r}: {error}") from error


def _fetch_fsspec(url: str, allowed: Allowed, target: Path) -> Fetched:
    import fsspec  # pyright: ignore[reportMissingTypeStubs]

    open_url = cast("Callable[[str, str], AbstractContextManager[IO[bytes]]]", fsspec.open)  # pyright: ignore[reportUnknownMemberType]

    with open_url(url, "rb") as source, target.open("wb") as file:
        writer = _Writer(file, allowed.max_bytes, url)
        while chunk := source.read(_CHUNK):
            writer.write(chunk)
    return Fetched(writer.sha256, None)


class _Writer:
    def __init__(self, file: IO[bytes], room: int, url: str) -> None:
        self._file, self._room, self._url = file, room, url
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        self._room -= len(chunk)
        if self._room < 0:
            raise TooLargeError(
                f"the tests at {self._url!r} are larger than this server takes (--max-test-mb)"
            )
        self._hash.update(chunk)
        self._file.write(chunk)


async def _fetch_http(url: str, allowed: Allowed, target: Path, etag: str | None) -> Fetched:
    headers = {"if-none-match": etag} if etag else {}
    try:
        async with httpx.AsyncClient(timeout=_TIMEOUT, trust_env=False) as client:
            for _ in range(_REDIRECTS + 1):
                request = await _checked(client, url, allowed, headers)
                response = await client.send(request, stream=True)
                try:
                    if response.has_redirect_location:
                        url = urljoin(url, response.headers["location"])
                        continue
                    return await _written(response, url, allowed, target, etag)
                finally:
                    await response.aclose()
    except httpx.HTTPError as error:
        raise UnavailableError(
            f"tests cannot be read from {url!r}: {error or type(error).__name__}"
        ) from error
    raise RequestError(f"too many redirects at {url!r}")


async def _written(
    response: httpx.Response, url: str, allowed: Allowed, target: Path, etag: str | None
) -> Fetched:
    if response.status_code == _NOT_MODIFIED and etag:
        return Fetched(None, etag)
    if response.status_code != _OK:
        kind = UnavailableError if response.status_code >= 500 else RequestError
        raise kind(f"tests cannot be read from {url!r}: it answered {response.status_code}")
    with target.open("wb") as file:
        writer = _Writer(file, allowed.max_bytes, url)
        try:
            async for chunk in _unpacked(response, url):
                writer.write(chunk)
        except zlib.error as error:
            raise RequestError(f"the tests at {url!r} are not valid gzip: {error}") from error
    return Fetched(writer.sha256, response.headers.get("etag"))


async def _unpacked(response: httpx.Response, url: str) -> AsyncGenerator[bytes]:
    """In pieces of bounded size: a few kilobytes may stand for gigabytes, and packed twice for far more."""
    packed = response.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("identity", "gzip", ""):
        raise RequestError(f"the tests at {url!r} are compressed as {packed!r}; only gzip is supported")
    unpacker = zlib.decompressobj(wbits=31)
    async for chunk in response.aiter_raw(_CHUNK):
        if packed != "gzip":
            yield chunk
            continue
        while chunk:
            if unpacker.eof:  # a file of gzip may be several, one behind the other
                unpacker = zlib.decompressobj(wbits=31)
            yield unpacker.decompress(chunk, _CHUNK)
            chunk = unpacker.unconsumed_tail or unpacker.unused_data
    if packed == "gzip" and not unpacker.eof:
        raise UnavailableError(f"tests cannot be read from {url!r}: they are cut short")


async def _checked(
    client: httpx.AsyncClient, url: str, allowed: Allowed, headers: dict[str, str]
) -> httpx.Request:
    """A request to an address that was looked up, and found allowed, once."""
    parts = httpx.URL(url)
    if parts.scheme not in ("http", "https") or not parts.host:
        raise RequestError(f"tests may not be read from {url!r}")
    named = allowed.is_named(url)
    if allowed.names_hosts and not named:
        raise RequestError(f"the host {parts.host!r} is not on this server's list", fix="--allow HOST")
    address = await _address(parts.host, parts.port, allow_private=named)
    return client.build_request(
        "GET",
        parts.copy_with(host=address),
        headers={**headers, "accept-encoding": "gzip", "host": parts.netloc.decode().rpartition("@")[2]},
        extensions={"sni_hostname": parts.host},
    )


async def _address(host: str, port: int | None, *, allow_private: bool) -> str:
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port or 80, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RequestError(f"the host {host!r} cannot be resolved: {error}") from error
    addresses = [str(one[4][0]) for one in found]
    if not allow_private and not all(map(_is_public, addresses)):
        raise RequestError(
            f"the host {host!r} has an address that is not public", fix="start the sandbox with --allow HOST"
        )
    return addresses[0]


def _is_public(text: str) -> bool:
    """Whether everybody reaches the same place there; what stands for an IPv4 address is taken for that."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64 or address in _COMPATIBLE:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(str(inner))
    return address.is_global and not address.is_multicast and not address.is_reserved
