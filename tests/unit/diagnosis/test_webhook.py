"""Findings at an address of the owner's: a real server on this machine that answers as it is told."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import queue
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from strop.diagnosis.webhook import QUEUE_LIMIT, Webhook, signature
from strop.schema.watching import WebhookConfig

SECRET = "a secret of the owner"


class Receiver(ThreadingHTTPServer):
    """Answers with the statuses of `answers`, then 204; what came stands in `got`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.answers: queue.Queue[int] = queue.Queue()
        self.got: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        self.held = threading.Event()
        self.held.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook/secret-path?token=1"

    def next(self) -> tuple[dict[str, str], bytes]:
        return self.got.get(timeout=60)


class _Answering(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.put(({name.lower(): value for name, value in self.headers.items()}, body))
        self.server.held.wait(60)
        status = 204 if self.server.answers.empty() else self.server.answers.get()
        self.send_response(status)
        if status == 302:
            self.send_header("location", self.server.url)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def receiver() -> Generator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.held.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def hook(receiver: Receiver) -> Generator[tuple[Webhook, list[str]]]:
    told: list[str] = []
    made = Webhook(WebhookConfig(url=receiver.url, secret=SECRET), told.append, retry_s=(0.0, 0.001))
    yield made, told
    made.close(60)


def test_a_message_comes_as_json_and_its_signature_can_be_verified(hook, receiver: Receiver):
    hook[0].send("ft-1.P4.7.began", {"rule": "P4", "title": {"zh": "熵骤降"}})
    headers, body = receiver.next()
    assert json.loads(body) == {"rule": "P4", "title": {"zh": "熵骤降"}}
    assert headers["content-type"] == "application/json"
    signed = f"ft-1.P4.7.began.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-id"] == "ft-1.P4.7.began"


def test_the_signature_is_that_of_standard_webhooks():
    # The example of their specification.
    assert (
        signature(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            b'{"test": 2432232314}',
        )
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


def test_without_a_secret_nothing_is_signed(receiver: Receiver):
    made = Webhook(WebhookConfig(url=receiver.url), lambda text: None)
    made.send("m", {})
    headers, _ = receiver.next()
    made.close(60)
    assert "webhook-signature" not in headers


def test_a_server_in_trouble_is_tried_again_with_the_same_id(hook, receiver: Receiver):
    for status in (503, 429):
        receiver.answers.put(status)
    hook[0].send("m1", {"n": 1})
    hook[0].send("m2", {"n": 2})
    assert [receiver.next()[0]["webhook-id"] for _ in range(4)] == ["m1", "m1", "m1", "m2"]
    hook[0].close(60)
    assert hook[1] == []


@pytest.mark.parametrize(("status", "tries"), [(404, 1), (302, 1), (500, 3)])
def test_what_will_not_be_taken_is_given_up_and_told_without_the_addresss_secrets(
    hook, receiver: Receiver, status: int, tries: int
):
    for _ in range(tries):
        receiver.answers.put(status)
    hook[0].send("m1", {})
    hook[0].send("m2", {})
    assert [receiver.next()[0]["webhook-id"] for _ in range(tries + 1)] == ["m1"] * tries + ["m2"]
    hook[0].close(60)
    host = receiver.url.split("/hook")[0]
    assert hook[1] == [f"m1 was not delivered to {host}: it answered {status}"]


def test_an_address_where_nobody_listens_is_told_of(receiver: Receiver):
    url, told = receiver.url, []
    receiver.server_close()
    made = Webhook(WebhookConfig(url=url), told.append, retry_s=(0.0,))
    made.send("m1", {})
    made.close(60)
    [text] = told
    assert "ConnectError" in text
    assert "secret-path" not in text


def test_a_receiver_that_hangs_holds_up_nobody(hook, receiver: Receiver):
    receiver.held.clear()
    for number in range(QUEUE_LIMIT + 2):  # one is under way, the queue is full, and one is too many
        hook[0].send(f"m{number}", {})
        if not number:
            receiver.next()
    assert hook[1] == [f"m{QUEUE_LIMIT + 1} was not sent: {QUEUE_LIMIT} messages wait already"]
    hook[0].close(0.0)
    receiver.held.set()


def test_a_proxy_that_cannot_be_used_is_told_of(receiver: Receiver, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ALL_PROXY", "nothing://user:password@127.0.0.1:1")
    told: list[str] = []
    made = Webhook(WebhookConfig(url=receiver.url), told.append)
    made.send("m1", {})
    made.close(60)
    host = receiver.url.split("/hook")[0]
    assert told == [f"nothing is sent to {host}, the run goes on: ValueError"]
