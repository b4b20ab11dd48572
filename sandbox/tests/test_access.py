"""Who comes in: bodies are bounded whatever they announce, keys compared, names that are not loopback's refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from strop_sandbox import access
from strop_sandbox.access import AccessMiddleware

KEY = "ключ"


async def length(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that reads the whole body."""
    text = str(len(await Request(scope, receive).body()))
    await PlainTextResponse(text)(scope, receive, send)


async def parts(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


async def post(path: str = "/run_code", *, key: str | None = None, **more: Any) -> httpx.Response:
    transport = httpx.ASGITransport(AccessMiddleware(length, key), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        return await client.post(path, **more)


@pytest.mark.parametrize("sizes", [(11,), (6, 6), (6, 6, 6)])
async def test_a_body_of_no_announced_length_is_bounded(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    monkeypatch.setattr(access, "_BODY_BYTES", 10)
    assert (await post(content=parts(5, 5))).text == "10"
    refused = await post(content=parts(*sizes))
    assert (refused.status_code, refused.json()) == (413, {"detail": "a body may have 10 bytes"})


async def test_keys_beyond_ascii_are_compared() -> None:
    token = {"authorization": f"Bearer {KEY}".encode()}
    assert (await post(key=KEY, content=b"", headers=token)).status_code == 200
    assert (await post(f"/key/{quote(KEY)}/run_code", key=KEY, content=b"")).status_code == 200
    assert (await post(f"/key/{quote(KEY)}/run_code", key="key", content=b"")).status_code == 401
    assert (await post(key=KEY, content=b"", headers={"authorization": "Bearer key"})).status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8090", 200),
        ("localhost", 200),
        ("[::1]:8090", 200),
        ("Sandbox.Internal:8090", 200),
        ("rebound.example:8090", 403),
        ("127.0.0.1.rebound.example", 403),
        ("169.254.169.254", 403),
        ("[2001:db8::1]", 403),
    ],
)
async def test_without_a_key_only_loopback_and_trusted_names_are_answered(host: str, status: int) -> None:
    app = AccessMiddleware(length, None, ["sandbox.internal"])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://box") as client:
        for path in ("/run_code", "/v1/ping"):
            reply = await client.post(path, content=b"", headers={"host": host})
            assert reply.status_code == status
            if status != 200:
                assert "--trusted-host" in reply.json()["detail"]


async def test_with_a_key_any_name_will_do() -> None:
    headers = {"host": "rebound.example", "authorization": "Bearer key"}
    assert (await post(key="key", content=b"", headers=headers)).status_code == 200
