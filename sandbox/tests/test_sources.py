"""Where test files may come from: what a name was looked up as is connected to, and it must be public."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from pathlib import Path

import fsspec
import httpx
import pytest

from strop_sandbox.errors import RequestError, TooLargeError
from strop_sandbox.sources import Allowed, _checked, _is_public, fetch  # pyright: ignore[reportPrivateUsage]

PUBLIC = "93.184.216.34"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What each look-up gives, in order; those that were used are gone."""
    answers: list[list[str]] = []

    async def getaddrinfo(_: object, host: str, port: int, **__: object) -> list[tuple[object, ...]]:
        kind = socket.AF_INET
        return [(kind, socket.SOCK_STREAM, 6, "", (address, port)) for address in answers.pop(0)]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return answers


async def asked(url: str, allowed: Allowed) -> httpx.Request:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await _checked(client, url, allowed, {})


async def test_a_name_is_looked_up_once_and_what_was_found_is_connected_to(names: list[list[str]]) -> None:
    """A name that answers with another address the second time (DNS rebinding) is not asked a second time."""
    names += [[PUBLIC], ["127.0.0.1"]]
    request = await asked("https://tests.example:8443/a?b=1", Allowed())
    assert names == [["127.0.0.1"]]
    assert str(request.url) == f"https://{PUBLIC}:8443/a?b=1"
    assert request.headers["host"] == "tests.example:8443"
    assert request.extensions["sni_hostname"] == "tests.example"


@pytest.mark.parametrize("found", [["10.0.0.1"], [PUBLIC, "127.0.0.1"], ["::ffff:169.254.169.254"]])
async def test_one_address_that_is_not_public_refuses_the_name(
    names: list[list[str]], found: list[str]
) -> None:
    names += [found, found]
    with pytest.raises(RequestError, match="not public"):
        await asked("http://tests.example/a", Allowed())
    request = await asked("http://tests.example/a", Allowed(hosts=("tests.example",)))
    assert request.url.host == found[0].lower()


async def test_with_a_host_named_no_other_is_asked(names: list[list[str]]) -> None:
    with pytest.raises(RequestError, match=r"other\.example.*not on this server's list"):
        await asked("http://other.example/a", Allowed(hosts=("tests.example",)))


@pytest.mark.parametrize(
    ("address", "public"),
    [(PUBLIC, True), ("2606:2800:220:1::1", True), ("::ffff:93.184.216.34", True), ("0.0.0.0", False),
     ("100.64.0.1", False), ("169.254.169.254", False), ("224.0.0.1", False), ("240.0.0.1", False),
     ("::1", False), ("::7f00:1", False), ("::ffff:10.0.0.1", False), ("64:ff9b::7f00:1", False),
     ("2002:7f00:1::", False), ("fe80::1%eth0", False), ("fd00::1", False), ("ff02::1", False)],
)  # fmt: skip
def test_public_is_what_everybody_reaches(address: str, public: bool) -> None:
    assert _is_public(address) is public


async def test_any_kind_of_store_is_read_where_its_prefix_is_allowed(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/tests/a.json", b"[1, 2]")
    try:
        target = tmp_path / "a"
        fetched = await fetch("memory://tests/a.json", Allowed(hosts=("memory://tests/",)), target)
        assert target.read_bytes() == b"[1, 2]"
        assert fetched.sha256 == hashlib.sha256(b"[1, 2]").hexdigest()
        with pytest.raises(TooLargeError, match="--max-test-mb"):
            await fetch("memory://tests/a.json", Allowed(hosts=("memory://tests/",), max_bytes=5), target)
        for url, word in (
            ("memory://other/a.json", "may not be read"),
            ("memory://tests/b.json", "no tests"),
        ):
            with pytest.raises(RequestError, match=word):
                await fetch(url, Allowed(hosts=("memory://tests/",)), target)
    finally:
        store.rm("/tests", recursive=True)
