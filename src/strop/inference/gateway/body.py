"""Request -> its body, bounded: what one client may make us hold."""

from __future__ import annotations

from starlette.requests import Request

from strop.inference.gateway.errors import RequestRefused

BODY_LIMIT = 16 * 2**20
"""Bytes. Far beyond any context in text form."""


async def read_body(request: Request) -> bytes:
    """Raises:
    RequestRefused: 413 beyond `BODY_LIMIT`.
    """
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_LIMIT:
            raise RequestRefused(f"the body exceeds {BODY_LIMIT} bytes", status=413, code="body_too_large")
    return bytes(body)
