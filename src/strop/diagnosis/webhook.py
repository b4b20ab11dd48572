"""Findings that begin and end -> POSTs to an address of the job's owner, signed where he wants it.

A thread of its own sends them in order; nothing here is waited for. Signed by Standard Webhooks
(https://www.standardwebhooks.com), so that their libraries verify it: `webhook-signature` is HMAC-SHA256 over
`{webhook-id}.{webhook-timestamp}.{body}`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from strop.locales import msg
from strop.schema.watching import WebhookConfig

if TYPE_CHECKING:
    import httpx

QUEUE_LIMIT = 100
TIMEOUT_S = 5.0
RETRY_S: Sequence[float] = (1.0, 4.0, 15.0)
"""Seconds between the tries of one message; then it is given up, and an event says so."""

GRACE_S = 8.0
"""For what waits, once the run has ended: a try that is under way, and one for each message behind it."""

_PREFIX = "whsec_"


class Webhook:
    """Sends what it is given, in order, as often as it takes within bounds.

    Concurrency:
        `send` and `close` may be called from any thread; `tell` is called from the sender's own.
    Side effects:
        Starts a thread; `close` ends it.
    """

    def __init__(
        self, config: WebhookConfig, tell: Callable[[str], None], *, retry_s: Sequence[float] = RETRY_S
    ) -> None:
        """`tell` is called for messages that could not be delivered."""
        self._config = config
        self._tell = tell
        self._retry_s = tuple(retry_s)
        self._waiting: queue.Queue[tuple[str, bytes] | None] = queue.Queue(QUEUE_LIMIT)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        self._thread.start()

    def send(self, message_id: str, body: Mapping[str, Any]) -> None:
        """Hand over a message. `message_id` is the same however often it is tried."""
        try:
            self._waiting.put_nowait((message_id, json.dumps(body, ensure_ascii=False).encode()))
        except queue.Full:
            self._tell(
                msg(
                    "{message_id} was not sent: {queue_limit} messages wait already",
                    message_id=message_id,
                    queue_limit=QUEUE_LIMIT,
                )
            )

    def close(self, grace_s: float = GRACE_S) -> None:
        """Try once more what waits, but not for longer than the grace."""
        self._ending.set()
        with suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(grace_s)

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception as error:  # noqa: BLE001  HTTP's edge: a proxy of the environment may be none
            why = str(error) if isinstance(error, ImportError) else type(error).__name__
            host = _host(self._config.url)
            self._tell(msg("nothing is sent to {host}, the run goes on: {why}", host=host, why=why))

    def _send_all(self) -> None:
        import httpx

        with httpx.Client(timeout=TIMEOUT_S, follow_redirects=False) as client:
            while (message := self._next()) is not None:
                trouble = self._deliver(client, *message)
                if trouble is not None:
                    host = _host(self._config.url)
                    told = msg("{message} was not delivered to {host}: ", message=message[0], host=host)
                    self._tell(told + trouble)

    def _next(self) -> tuple[str, bytes] | None:
        while True:
            try:
                return self._waiting.get(timeout=0.5)
            except queue.Empty:
                if self._ending.is_set():
                    return None

    def _deliver(self, client: httpx.Client, message_id: str, body: bytes) -> str | None:
        """What went wrong at last; None where it was taken."""
        trouble: str | None = None
        for pause_s in (0.0, *self._retry_s):
            if pause_s and self._ending.wait(pause_s):
                break
            trouble, again = self._try(client, message_id, body)
            if not again:
                break
        return trouble

    def _try(self, client: httpx.Client, message_id: str, body: bytes) -> tuple[str | None, bool]:
        """What went wrong, and whether another try may go better."""
        import httpx

        try:
            # The answer's body is not needed, and may never end.
            with client.stream(
                "POST", self._config.url, content=body, headers=self._headers(message_id, body)
            ) as reply:
                status = reply.status_code
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{type(error).__name__}", True
        if 200 <= status < 300:
            return None, False
        return msg("it answered {status}", status=status), status == 429 or status >= 500

    def _headers(self, message_id: str, body: bytes) -> dict[str, str]:
        now = str(int(time.time()))
        headers = {"content-type": "application/json", "webhook-id": message_id, "webhook-timestamp": now}
        if self._config.secret is not None:
            headers["webhook-signature"] = signature(self._config.secret, message_id, now, body)
        return headers


def signature(secret: str, message_id: str, timestamp: str, body: bytes) -> str:
    """`v1,` and the HMAC. A secret `whsec_...` is base64, as Standard Webhooks has it; another is taken as
    it is.

    >>> signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330",
    ...     b'{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='
    """
    digest = hmac.new(_key(secret), f"{message_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def _key(secret: str) -> bytes:
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _host(url: str) -> str:
    """The part of an address that holds no secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
