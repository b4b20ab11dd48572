import asyncio
import gzip

import httpx
import pytest

from strop.cli.checking import PipelineFlow
from strop.doors.app import create_app
from strop.errors import ConfigError
from strop.service.settings import Settings
from strop.service.span_forwarding import (
    FORWARDED,
    QUEUE_LIMIT,
    Backend,
    Forwarding,
    backend_from_environment,
)

PLAIN = Backend(url="http://collector/v1/traces", headers={"api-key": "k"}, timeout_s=1.0, gzip=False)


class Collector:
    """Answers with the statuses given, then 200; keeps what came."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.requests: list[httpx.Request] = []
        self.came = asyncio.Event()

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.came.set()
        status = self.statuses.pop(0) if self.statuses else 200
        if status == 0:
            raise httpx.ConnectError("refused")
        return httpx.Response(status)


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.005)


async def test_a_batch_goes_on_with_the_headers_of_the_environment():
    collector = Collector()
    forwarding = Forwarding(PLAIN, client=collector.client())
    forwarding.start()
    forwarding.put(b"spans")
    await until(lambda: forwarding.sent == 1)
    await forwarding.close()
    (request,) = collector.requests
    assert (request.content, request.headers["api-key"]) == (b"spans", "k")
    assert request.headers["content-type"] == "application/x-protobuf"
    assert FORWARDED in request.headers


async def test_gzip_is_used_where_it_is_asked_for():
    collector = Collector()
    backend = Backend(url=PLAIN.url, headers={}, timeout_s=1.0, gzip=True)
    forwarding = Forwarding(backend, client=collector.client())
    forwarding.start()
    forwarding.put(b"spans")
    await until(lambda: forwarding.sent == 1)
    await forwarding.close()
    assert gzip.decompress(collector.requests[0].content) == b"spans"
    assert collector.requests[0].headers["content-encoding"] == "gzip"


async def test_a_refusal_for_good_is_not_tried_again_and_costs_that_batch_only(monkeypatch, caplog):
    collector = Collector(400)
    forwarding = Forwarding(PLAIN, client=collector.client())
    forwarding.start()
    forwarding.put(b"one")
    forwarding.put(b"two")
    await until(lambda: forwarding.sent == 1)
    await forwarding.close()
    assert [request.content for request in collector.requests] == [b"one", b"two"]
    assert forwarding.dropped == 1
    assert "HTTP 400" in caplog.text


async def test_the_log_names_the_backend_without_its_user_and_password(caplog):
    collector = Collector(400)
    backend = Backend(url="https://me:p%40ss@c:4318/v1/traces", headers={}, timeout_s=1.0, gzip=False)
    forwarding = Forwarding(backend, client=collector.client())
    forwarding.start()
    forwarding.put(b"one")
    forwarding.put(b"two")
    await until(lambda: forwarding.sent == 1)
    await forwarding.close()
    told = [
        record.getMessage() for record in caplog.records if record.name == "strop.service.span_forwarding"
    ]
    assert told == [
        "spans are not passed on to https://c:4318/v1/traces: HTTP 400",
        "spans go on to https://c:4318/v1/traces again",
    ]
    with pytest.raises(ConfigError) as caught:
        backend_from_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": "me:secret@c:4318"})
    assert "secret" not in str(caught.value)


async def test_a_backend_that_is_gone_for_a_while_is_tried_again(monkeypatch):
    monkeypatch.setattr("strop.service.span_forwarding._FIRST_PAUSE_S", 0.001)
    collector = Collector(0, 503)
    forwarding = Forwarding(PLAIN, client=collector.client())
    forwarding.start()
    forwarding.put(b"spans")
    await until(lambda: forwarding.sent == 1)
    await forwarding.close()
    assert len(collector.requests) == 3
    assert forwarding.dropped == 0


async def test_a_backend_that_takes_nothing_costs_memory_for_a_bounded_queue_only():
    forwarding = Forwarding(PLAIN, client=Collector().client())
    for _ in range(QUEUE_LIMIT + 3):
        forwarding.put(b"spans")
    await forwarding.close()
    assert forwarding.dropped == 3


def test_the_environment_names_the_backend():
    assert backend_from_environment({}) is None
    general = backend_from_environment(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/", "OTEL_EXPORTER_OTLP_HEADERS": "Api-Key=a%20b, x=1"}
    )
    assert general == Backend(
        url="http://c:4318/v1/traces", headers={"api-key": "a b", "x": "1"}, timeout_s=10.0, gzip=False
    )
    own = backend_from_environment(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x",
            "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "gzip",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2.5",
        }
    )
    assert own == Backend(url="http://t/x", headers={}, timeout_s=2.5, gzip=True)
    assert (
        backend_from_environment({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"})
        is None
    )


def test_every_value_that_could_not_be_followed_is_refused_by_its_name():
    with pytest.raises(ConfigError) as caught:
        backend_from_environment(
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "c:4318",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_COMPRESSION": "zstd",
                "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": "soon",
            }
        )
    assert [problem.place for problem in caught.value.problems] == [
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        "OTEL_EXPORTER_OTLP_COMPRESSION",
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    ]


@pytest.mark.parametrize(
    "address", ["http://localhost:8080", "http://127.0.0.1:8080/", "http://me:pw@10.0.0.7:8080"]
)
def test_a_server_does_not_send_to_itself(monkeypatch, address):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    with pytest.raises(ConfigError, match="is this server itself") as caught:
        create_app(Settings(host="10.0.0.7"), PipelineFlow())
    assert "pw" not in str(caught.value)
