"""Spans counted by the frames of a request, before anything of it is read."""

import orjson
import pytest
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fakes.spans import otlp_request
from strop.doors.otlp import decoding as otlp
from strop.errors import RequestError, TooLargeError


def nested(counts: list[list[int]]) -> ExportTraceServiceRequest:
    """Resources with scopes with so many spans, among other fields at every level."""
    request = ExportTraceServiceRequest()
    for scopes in counts:
        resource = request.resource_spans.add(schema_url="https://x")
        resource.resource.attributes.add(key="a").value.string_value = "\x12\x02\x12\x00"
        for number in scopes:
            scope = resource.scope_spans.add(schema_url="https://y")
            scope.scope.name = "s"
            for index in range(number):
                scope.spans.add(name="n" * index, start_time_unix_nano=index, flags=7)
    return request


@given(st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=3))
def test_the_count_is_that_of_the_spans_however_they_are_nested(counts: list[list[int]]):
    assert otlp.num_spans(nested(counts).SerializeToString()) == sum(map(sum, counts))


@given(st.binary(max_size=200))
def test_whatever_the_parser_reads_is_counted_and_nothing_else_breaks_the_count(body: bytes):
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except DecodeError:
        request = None
    try:
        count = otlp.num_spans(body)
    except DecodeError:
        return
    if request is not None:
        assert count == sum(len(two.spans) for one in request.resource_spans for two in one.scope_spans)


@pytest.mark.parametrize("kind", [otlp.PROTOBUF, otlp.JSON])
def test_a_body_of_too_many_spans_is_refused_without_being_read(kind: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(otlp, "MAX_SPANS", 4)
    monkeypatch.setattr(otlp.json_format, "ParseDict", None)
    request = otlp_request(5)
    body = (
        request.SerializeToString() if kind == otlp.PROTOBUF else json_format.MessageToJson(request).encode()
    )
    with pytest.raises(TooLargeError, match="more than 4 spans"):
        otlp.parse(body, content_type=kind, encoding="")


def test_as_many_as_are_taken_are_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(otlp, "MAX_SPANS", 4)
    told = otlp.parse(otlp_request(4).SerializeToString(), content_type=otlp.PROTOBUF, encoding="")
    assert len(otlp.spans_of(told)) == 4


def test_every_message_counts_at_whatever_depth_it_lies(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(otlp, "MAX_PARTS", 9)
    request = ExportTraceServiceRequest()
    span = (
        request.resource_spans.add().scope_spans.add().spans.add(name="\x0a\x00\x0a\x00", trace_id=bytes(16))
    )
    span.status.message = "\x12\x00"
    value = span.attributes.add(key="k").value.array_value.values.add()
    value.string_value = "\x0a\x00"
    # Resource, scope and span; the status; an attribute, its value, the list in it and that one's value.
    assert otlp.num_parts(request.SerializeToString()) == 8


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x00" * 41,
        b"\x0a\x54" + b"\x0a\x52" + b"\x0a\x00" * 41,
        b"\x0a\x56" + b"\x12\x54" + b"\x12\x52" + b"\x6a\x00" * 41,
    ],
    ids=["resources", "attributes of a resource", "links of a span"],
)
def test_a_body_of_too_many_parts_is_refused_without_being_read(body: bytes, monkeypatch: pytest.MonkeyPatch):
    assert ExportTraceServiceRequest.FromString(body).ByteSize() == len(body)
    monkeypatch.setattr(otlp, "MAX_PARTS", 40)
    with pytest.raises(TooLargeError, match="more than 40 attributes"):
        otlp.parse(body, content_type=otlp.PROTOBUF, encoding="")


def test_json_of_too_many_parts_is_refused_without_being_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(otlp, "MAX_PARTS", 40)
    monkeypatch.setattr(otlp.orjson, "loads", None)
    body = b'{"resourceSpans":[' + b"{}," * 39 + b"{}]}"
    with pytest.raises(TooLargeError, match="more than 40 attributes"):
        otlp.parse(body, content_type=otlp.JSON, encoding="")


def test_json_that_a_model_wrote_is_a_text_and_no_parts_of_the_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(otlp, "MAX_PARTS", 40)
    written = '{"said": "\\\\"}' + "[{" * 50
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(name="n")
    span.attributes.add(key="k").value.string_value = written
    content = orjson.dumps(json_format.MessageToDict(request))
    # The whole; lists of resources, scopes, spans and attributes, one object in each; the attribute's value.
    assert otlp.num_json_parts(content) == 10
    read = otlp.parse(content, content_type=otlp.JSON, encoding="")
    assert read.resource_spans[0].scope_spans[0].spans[0].attributes[0].value.string_value == written


@pytest.mark.parametrize("said", [3, {"resourceSpans": 3}, {"resourceSpans": [{"scopeSpans": [3]}]}])
def test_json_of_another_shape_is_the_parsers_to_refuse(said: object):
    with pytest.raises(RequestError):
        otlp.parse(orjson.dumps(said), content_type=otlp.JSON, encoding="")


TINY = b"\x08\x01"
"""A number in a field that OTLP has not: what its parser passes over, and a walk through it does not."""


def wrapped(content: bytes, *fields: int) -> bytes:
    """The content as a message in the last of these fields, which stands in a message of the one before."""
    for number in reversed(fields):
        content = bytes([number << 3 | 2]) + otlp_varint(len(content)) + content
    return content


def otlp_varint(value: int) -> bytes:
    head = b""
    while value >= 0x80:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


@pytest.mark.parametrize(
    "fields", [(), (1,), (1, 2), (1, 2, 2)], ids=["request", "resource", "scope", "span"]
)
def test_tiny_fields_are_counted_to_their_bound_and_no_further(
    fields: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
):
    """Wherever they stand: a span is passed over by the count of spans, and walked by that of parts."""
    monkeypatch.setattr(otlp, "MAX_FIELDS", 1000)
    monkeypatch.setattr(otlp, "MAX_SPANS", 250)
    monkeypatch.setattr(otlp, "MAX_PARTS", 100)
    just = 1000 - len(fields)
    otlp.parse(wrapped(TINY * just, *fields), content_type=otlp.PROTOBUF, encoding="")
    with pytest.raises(TooLargeError, match="too many fields"):
        otlp.parse(wrapped(TINY * (just + 1), *fields), content_type=otlp.PROTOBUF, encoding="")


def test_millions_of_tiny_fields_are_refused_within_what_a_full_request_takes():
    """By steps of Python, not by the clock: at most so many fields are looked at."""
    looked, varint = 0, otlp._varint

    def counted(content: bytes, at: int, end: int) -> tuple[int, int]:
        nonlocal looked
        looked += 1
        return varint(content, at, end)

    otlp._varint = counted
    try:
        with pytest.raises(TooLargeError):
            otlp.parse(TINY * 4_000_000, content_type=otlp.PROTOBUF, encoding="")
    finally:
        otlp._varint = varint
    assert looked == 2 * 4 * otlp.MAX_SPANS
