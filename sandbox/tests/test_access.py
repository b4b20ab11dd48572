"""The sandbox's door: bodies are bounded whatever they announce, and keys of any letters are compared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from strop_sandbox import app as sandbox_app
from strop_sandbox.app import AccessMiddleware

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
    async with httpx.AsyncClient(transport=transport, base_url="http://box") as client:
        return await client.post(path, **more)


@pytest.mark.parametrize("sizes", [(11,), (6, 6), (6, 6, 6)])
async def test_a_body_of_no_announced_length_is_bounded(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    monkeypatch.setattr(sandbox_app, "_BODY_BYTES", 10)
    assert (await post(content=parts(5, 5))).text == "10"
    refused = await post(content=parts(*sizes))
    assert (refused.status_code, refused.json()) == (413, {"detail": "a body may have 10 bytes"})


async def test_keys_beyond_ascii_are_compared() -> None:
    token = {"authorization": f"Bearer {KEY}".encode()}
    assert (await post(key=KEY, content=b"", headers=token)).status_code == 200
    assert (await post(f"/key/{quote(KEY)}/run_code", key=KEY, content=b"")).status_code == 200
    assert (await post(f"/key/{quote(KEY)}/run_code", key="key", content=b"")).status_code == 401
    assert (await post(key=KEY, content=b"", headers={"authorization": "Bearer key"})).status_code == 401
