import gzip
import json
from datetime import UTC, datetime

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from fakes.server import serving
from fakes.spans import TRACE, otlp_request
from strop.schema.job import Job, JobStatus
from strop.service import traces
from strop.service.secret import open_signer
from strop.service.settings import Limits
from strop.service.span_access import job_token
from strop.service.span_forwarding import FORWARDED
from strop.store.jobs import create_job

PROTOBUF = "application/x-protobuf"


@pytest.fixture
def job_id(server):
    made = f"ft-{datetime.now(UTC):%H%M%S%f}"
    with server.database.write() as session:
        job = Job(
            job_id=made,
            name="j",
            status=JobStatus.PENDING,
            model="m",
            config={},
            created_at=datetime.now(UTC),
        )
        create_job(session, job)
    return made


def token_of(server, job_id):
    return job_token(open_signer(server.home), job_id)


def send(server, content, *, token, kind=PROTOBUF, encoding=None, path="/v1/traces"):
    headers = {"content-type": kind, **({"authorization": f"Bearer {token}"} if token else {})}
    if encoding:
        headers["content-encoding"] = encoding
    return httpx.post(f"{server.url}{path}", content=content, headers=headers)


def told(reply):
    assert reply.status_code == 200, reply.text
    answer = ExportTraceServiceResponse()
    answer.ParseFromString(reply.content)
    return answer.partial_success


def stored(server, job_id, **asked):
    return server.get(f"/fine-tunes/{job_id}/spans", limit=1000, **asked)["spans"]


def test_spans_of_a_job_token_are_stored_for_its_job(server, job_id):
    reply = send(server, otlp_request(3).SerializeToString(), token=token_of(server, job_id))
    assert told(reply).rejected_spans == 0
    first = stored(server, job_id)[0]
    assert first["trace_id"] == TRACE
    assert first["span_id"] == f"{1:016x}"
    assert (first["kind"], first["status"], first["name"]) == ("LLM", "ok", "chat smollm2")
    assert (first["rollout_id"], first["attempt_id"], first["service"]) == ("s1-0-r1", "a1", "agent")
    assert first["duration_ms"] == 250.0
    assert first["attributes"]["gen_ai.usage.input_tokens"] == 120
    assert "four" in first["preview"]


def test_gzipped_protobuf_is_read(server, job_id):
    body = gzip.compress(otlp_request(2).SerializeToString())
    assert told(send(server, body, token=token_of(server, job_id), encoding="gzip")).rejected_spans == 0
    assert len(stored(server, job_id)) == 2


def test_json_with_hex_ids_is_read_and_answered_in_json(server, job_id):
    one = {
        "traceId": TRACE.upper(),
        "spanId": "00f067aa0ba902b7",
        "parentSpanId": "",
        "name": "execute_tool add",
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": "1700000000002000000",
        "status": {"code": 2, "message": "ValueError: no"},
        "unknownField": 1,
        "attributes": [
            {"key": "gen_ai.span.kind", "value": {"stringValue": "TOOL"}},
            {"key": "parts", "value": {"arrayValue": {"values": [{"intValue": "4"}, {"boolValue": True}]}}},
        ],
    }
    body = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "s"}, "spans": [one]}]}]}
    reply = send(
        server, json.dumps(body), token=token_of(server, job_id), kind="application/json; charset=utf-8"
    )
    assert reply.json() == {}
    (found,) = stored(server, job_id)
    assert (found["trace_id"], found["span_id"], found["kind"]) == (TRACE, "00f067aa0ba902b7", "TOOL")
    assert (found["status"], found["message"]) == ("error", "ValueError: no")
    assert found["attributes"]["parts"] == [4, True]
    assert found["duration_ms"] == 2.0
    assert "parent_span_id" not in found


def test_an_api_key_writes_to_the_jobs_that_its_spans_name(server, job_id):
    reply = send(server, otlp_request(2, job_id=job_id).SerializeToString(), token=server.key)
    assert told(reply).rejected_spans == 0
    assert len(stored(server, job_id)) == 2


def test_spans_that_name_no_job_or_a_strange_one_are_rejected_with_the_reason(server):
    answer = told(send(server, otlp_request(2).SerializeToString(), token=server.key))
    assert answer.rejected_spans == 2
    assert "bailian.agentic_rl.job_id" in answer.error_message
    answer = told(send(server, otlp_request(3, job_id="ft-none").SerializeToString(), token=server.key))
    assert answer.rejected_spans == 3
    assert "ft-none" in answer.error_message


@pytest.mark.parametrize("token", ["", "sk-wrong", "job-spans.ft-x.wrong"])
def test_a_sender_without_a_good_token_is_refused(server, token):
    assert send(server, otlp_request(1).SerializeToString(), token=token).status_code == 401


def test_a_job_token_opens_nothing_else(server, job_id):
    with server.client(token_of(server, job_id)) as client:
        assert client.get(f"/fine-tunes/{job_id}").status_code == 401


class Passed:
    """In place of the forwarding: the batches that were to go on."""

    def __init__(self):
        self.batches = []

    def put(self, batch):
        self.batches.append(ExportTraceServiceRequest.FromString(batch))

    async def close(self):
        pass

    @property
    def numbers(self):
        return [
            [int.from_bytes(one.span_id, "big") for resource in batch.resource_spans
             for scoped in resource.scope_spans for one in scoped.spans]
            for batch in self.batches
        ]  # fmt: skip


@pytest.fixture
def passed(server, monkeypatch):
    made = Passed()
    monkeypatch.setattr(server.services, "forwarding", made)
    return made


def test_what_is_refused_is_not_passed_on_either(server, job_id, passed):
    mixed = otlp_request(2, job_id=job_id)
    mixed.MergeFrom(otlp_request(2, first=3))
    mixed.MergeFrom(otlp_request(2, first=5, job_id="ft-none"))
    mixed.MergeFrom(otlp_request(1, first=7, job_id=job_id))
    assert told(send(server, mixed.SerializeToString(), token=server.key)).rejected_spans == 4
    assert passed.numbers == [[1, 2, 7]]
    (batch,) = passed.batches
    assert batch.resource_spans[1] == otlp_request(1, first=7, job_id=job_id).resource_spans[0]


def test_a_batch_that_comes_twice_is_passed_on_once(server, job_id, passed):
    token = token_of(server, job_id)
    for count in (2, 2, 3):
        assert told(send(server, otlp_request(count).SerializeToString(), token=token)).rejected_spans == 0
    assert passed.numbers == [[1, 2], [3]]


def test_what_another_server_passed_on_goes_no_further(server, job_id, passed):
    bearer = f"Bearer {token_of(server, job_id)}"
    headers = {"content-type": PROTOBUF, "authorization": bearer, FORWARDED: "1"}
    content = otlp_request(2).SerializeToString()
    assert httpx.post(f"{server.url}/v1/traces", content=content, headers=headers).status_code == 200
    assert len(stored(server, job_id)) == 2
    assert passed.batches == []


def test_a_trigger_token_writes_below_its_instance(server, job_id):
    entity = server.register("reward", "Score")
    made = server.post(f"/fine-tunes/online/faas/{job_id}/{entity}", {})
    path = f"/functions/{made['instanceId']}/v1/traces"
    body = otlp_request(1, job_id=job_id).SerializeToString()
    assert send(server, body, token="wrong", path=path).status_code == 401
    assert told(send(server, body, token=made["trigger_token"], path=path)).rejected_spans == 0
    assert len(stored(server, job_id)) == 1
    assert server.http.post(f"/fine-tunes/delete/faas/{made['instanceId']}", json={}).status_code == 200


@pytest.mark.parametrize(
    ("content", "kind", "encoding", "status", "word"),
    [
        (b"\xff\xff\xff", PROTOBUF, None, 400, "not an OTLP"),
        (b"{", "application/json", None, 400, "not an OTLP"),
        (
            b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz"}]}]}]}',
            "application/json",
            None,
            400,
            "hex",
        ),
        (b"", "text/plain", None, 400, "content-type"),
        (b"abc", PROTOBUF, "gzip", 400, "gzip"),
        (b"abc", PROTOBUF, "zstd", 400, "content-encoding"),
        (gzip.compress(b"abc" * 1000, mtime=0)[:-9], PROTOBUF, "gzip", 400, "ends before"),
        (gzip.compress(bytes(9 * 2**20), 9, mtime=0), PROTOBUF, "gzip", 413, "unpacks to more"),
    ],
)
def test_what_is_no_batch_of_spans_is_refused_with_the_reason(
    server, job_id, content, kind, encoding, status, word
):
    reply = send(server, content, token=token_of(server, job_id), kind=kind, encoding=encoding)
    assert reply.status_code == status
    assert word in reply.text


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(tmp_path):
    with serving(tmp_path / "home", limits=Limits(body_bytes=1000)) as small:
        reply = send(small, otlp_request(50).SerializeToString(), token=small.key)
        assert reply.status_code == 413


def test_more_batches_than_fit_are_told_to_come_again(server, job_id, monkeypatch):
    monkeypatch.setattr(traces, "MAX_AT_ONCE", 0)
    reply = send(server, otlp_request(1).SerializeToString(), token=token_of(server, job_id))
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert "x-should-retry" not in reply.headers


def test_the_tree_of_a_rollout_is_laid_out_by_the_server(server, job_id):
    send(server, otlp_request(16).SerializeToString(), token=token_of(server, job_id))
    placed = server.get(f"/fine-tunes/{job_id}/spans/tree", rollout_id="s1-0-r3")["spans"]
    assert [(one["span_id"], one["depth"], one["offset_ms"]) for one in placed] == [
        (f"{3:016x}", 0, 0.0),
        (f"{11:016x}", 0, 8.0),
    ]


def test_another_workspace_sees_no_spans_of_the_job(server, job_id):
    assert server.http.get("/fine-tunes/ft-other/spans").status_code == 404
    assert server.http.get("/fine-tunes/ft-other/diagnosis").status_code == 404
