"""App -> how uvicorn serves it: connections that say nothing, or no more than half a request, are closed.

uvicorn itself waits for ever for the head of a request; a thousand such clients would use up its files.
"""

from __future__ import annotations

import asyncio
import uuid

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from strop.doors.failures import failure

HEAD_S = 20.0
"""For the request line and all headers, from the connection or the first byte on."""

MAX_HEAD_BYTES = 64 * 1024
_KEEP_ALIVE_S = 75
_GRACE_S = 5


class HeaderTimeoutProtocol(H11Protocol):
    """Closes a connection whose next request's head has begun and does not end."""

    head_s = HEAD_S
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._expect_head()
        else:
            self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """In JSON, as every reply: uvicorn's own is plain text."""
        identity = str(uuid.uuid4())
        text = f"this is not an HTTP request, or its headers are longer than {MAX_HEAD_BYTES // 1024} KiB"
        reply = failure("/", identity, 400, text)
        headers = [*reply.raw_headers, (b"x-request-id", identity.encode()), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=bytes(reply.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _expect_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.head_s, self.transport.close)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def served_by(app: ASGIApp, *, grace_s: int = _GRACE_S) -> uvicorn.Config:
    """The configuration of a control plane's server."""
    return uvicorn.Config(
        app,
        http=HeaderTimeoutProtocol,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws="none",
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=grace_s,
    )
