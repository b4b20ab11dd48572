"""OTLP body -> spans: protobuf or JSON, plain or gzipped, bounded in every direction."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import orjson
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan

from strop.errors import RequestError, TooLargeError
from strop.locales import msg
from strop.schema.span import ATTEMPT_ID, ROLLOUT_ID, SAMPLE_ID, SPAN_KIND, Span, SpanKind, SpanStatus

JSON, PROTOBUF = "application/json", "application/x-protobuf"

MAX_BYTES = 8 * 1024 * 1024
"""After unpacking, as much as a body may have that is not packed: a span of two bytes takes hundreds here,
before any can be counted."""

MAX_SPANS = 20_000
MAX_PARTS = 500_000
"""Messages within a request: attributes, values, events and whatever else it nests. Of two bytes each, eight
times as many would fit a body, and each takes tens here; with names and values in them, these fill it."""

MAX_FIELDS = 1_200_000
"""Names and values included: an attribute has four. Told apart one by one here, they take a second."""

MAX_VALUE_CHARS = 128 * 1024
MAX_ATTRIBUTES = 128
MAX_EVENTS = 32

_STATUS = {0: SpanStatus.UNSET, 1: SpanStatus.OK, 2: SpanStatus.ERROR}
_KINDS = {kind.value: kind for kind in SpanKind}
_OPERATIONS = {
    "chat": SpanKind.LLM,
    "text_completion": SpanKind.LLM,
    "generate_content": SpanKind.LLM,
    "execute_tool": SpanKind.TOOL,
    "invoke_agent": SpanKind.CHAIN,
}
"""OpenTelemetry's GenAI operations, for instrumentations that name no kind."""
_ID_FIELDS = frozenset({"traceId", "spanId", "parentSpanId"})


def parse(body: bytes, *, content_type: str, encoding: str) -> ExportTraceServiceRequest:
    """Raises:
    RequestError: it is no OTLP request. TooLargeError: it unpacks to more bytes than are taken, or has more
        spans or parts.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (JSON, PROTOBUF):
        raise RequestError(
            msg("content-type is {kind!r}", kind=kind),
            fix=msg("send OTLP as {protobuf} or {json}", protobuf=PROTOBUF, json=JSON),
        )
    content = _unpacked(body, encoding.strip().lower())
    request = ExportTraceServiceRequest()
    try:
        if kind == PROTOBUF:
            _refuse_too_many(num_spans(content), num_parts(content))
            request.ParseFromString(content)
        else:
            _refuse_too_many(0, num_json_parts(content))
            said: Any = orjson.loads(content)
            _refuse_too_many(_num_said(said), 0)
            json_format.ParseDict(_with_base64_ids(said), request, ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, ValueError, RecursionError, TypeError) as error:
        raise RequestError(
            msg("the body is not an OTLP trace request: {error}", error=str(error)[:200])
        ) from error
    return request


def reply(rejected: int, why: str, *, content_type: str) -> bytes:
    """What the sender is told, in his own form: an empty message is a full success."""
    answer = ExportTraceServiceResponse()
    if rejected:
        answer.partial_success.rejected_spans = rejected
        answer.partial_success.error_message = why
    if content_type.startswith(JSON):
        return json_format.MessageToJson(answer, indent=None).encode()
    return answer.SerializeToString()


def spans_of(request: ExportTraceServiceRequest) -> list[tuple[Span, Mapping[str, Any]]]:
    """Every span, with the attributes of the resource that sent it."""
    found: list[tuple[Span, Mapping[str, Any]]] = []
    for batch in request.resource_spans:
        resource = _attributes(batch.resource.attributes)
        service = str(resource.get("service.name", ""))[:256]
        for scoped in batch.scope_spans:
            scope = scoped.scope.name[:256]
            found += [(_span(one, scope, service), resource) for one in scoped.spans]
    return found


def num_spans(content: bytes) -> int:
    """How many spans a protobuf request has, told by its frames alone: read, a span of two bytes would take
    hundreds. Counting ends beyond what is taken.

    Raises:
        DecodeError: its frames do not fit into each other. TooLargeError: it has too much between its spans.
    """
    count = 0
    left = iter(range(4 * MAX_SPANS))  # between the spans there is little else
    for resource in _messages(content, 0, len(content), 1, left):  # ExportTraceServiceRequest.resource_spans
        for scope in _messages(content, *resource, 2, left):  # ResourceSpans.scope_spans
            for _ in _messages(content, *scope, 2, left):  # ScopeSpans.spans
                count += 1
                if count > MAX_SPANS:
                    return count
    return count


def num_parts(content: bytes) -> int:
    """How many messages a protobuf request nests, of whatever kind and depth. Counting ends beyond what is
    taken; a body that cannot have as many is not looked at and counts none.

    Raises:
        DecodeError: its frames do not fit into each other. TooLargeError: more than `MAX_FIELDS` fields.
    """
    if len(content) <= 2 * MAX_PARTS:  # a message takes two bytes at least
        return 0
    count, left = 0, iter(range(MAX_FIELDS))
    open_messages = [(0, len(content), ExportTraceServiceRequest.DESCRIPTOR)]
    while open_messages:
        at, end, message = open_messages.pop()
        for number, begin, close in _frames(content, at, end, left):
            field = message.fields_by_number.get(number)
            if field is None or field.message_type is None:
                continue
            count += 1
            if count > MAX_PARTS:
                return count
            open_messages.append((begin, close, field.message_type))
    return count


def num_json_parts(content: bytes) -> int:
    """As `num_parts`, of OTLP's JSON: its objects and lists. What strings hold, as the JSON that a model
    wrote, is told apart only where it would be too much together with them.
    """
    count = _num_opened(content)
    if count <= MAX_PARTS:
        return count
    outside = content.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')[::2]
    return sum(map(_num_opened, outside))


def _num_opened(content: bytes) -> int:
    return content.count(b"{") + content.count(b"[")


def _messages(
    content: bytes, at: int, end: int, wanted: int, left: Iterator[int]
) -> Iterator[tuple[int, int]]:
    """Where the messages in field `wanted` begin and end."""
    return ((begin, close) for number, begin, close in _frames(content, at, end, left) if number == wanted)


def _frames(content: bytes, at: int, end: int, left: Iterator[int]) -> Iterator[tuple[int, int, int]]:
    """Every field that has a length: its number, and where its content begins and ends.

    Raises:
        TooLargeError: `left`, which gives up one for each field of whatever kind, is empty.
    """
    while at < end:
        if next(left, None) is None:
            raise TooLargeError(msg("too many fields in one request"), fix=msg("send smaller batches"))
        tag, at = _varint(content, at, end)
        match tag & 7:
            case 0:
                _, at = _varint(content, at, end)
            case 1:
                at += 8
            case 2:
                size, at = _varint(content, at, end)
                yield tag >> 3, at, min(at + size, end)
                at += size
            case 5:
                at += 4
            case _:
                raise DecodeError("a field of a kind that OTLP has not")


def _varint(content: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and where the next thing stands."""
    value = shift = 0
    while at < end and shift < 70:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError("a number without its end")


def _num_said(said: Any) -> int:
    """As `num_spans`, of OTLP's JSON; what is no list of objects is for the parser to refuse."""

    def each(holders: Any, *names: str) -> Iterator[Any]:
        for holder in cast("list[Any]", holders) if isinstance(holders, list) else ():
            if isinstance(holder, dict):
                fields = cast("dict[str, Any]", holder)
                yield next((fields[name] for name in names if name in fields), None)

    scopes = each([said], "resourceSpans", "resource_spans")
    spans = (two for one in scopes for two in each(one, "scopeSpans", "scope_spans"))
    lists = (three for two in spans for three in each(two, "spans"))
    return sum(len(cast("list[Any]", one)) for one in lists if isinstance(one, list))


def _refuse_too_many(spans: int, parts: int) -> None:
    if spans > MAX_SPANS:
        raise TooLargeError(
            msg("more than {max_spans} spans in one request", max_spans=MAX_SPANS),
            fix=msg("send smaller batches"),
        )
    if parts > MAX_PARTS:
        raise TooLargeError(
            msg("more than {max_parts} attributes and other parts in one request", max_parts=MAX_PARTS),
            fix=msg("send smaller batches"),
        )


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise RequestError(
            msg("content-encoding is {encoding!r}", encoding=encoding), fix=msg("send gzip, deflate, or none")
        )
    unpacker = zlib.decompressobj(wbits=47)  # gzip or zlib, by the header
    try:
        content = unpacker.decompress(body, MAX_BYTES)
    except zlib.error as error:
        raise RequestError(
            msg("the body is not valid {encoding}: {error}", encoding=encoding, error=error)
        ) from error
    if unpacker.unconsumed_tail:
        raise TooLargeError(
            msg("the body unpacks to more than {max_bytes} bytes", max_bytes=MAX_BYTES),
            fix=msg("send smaller batches"),
        )
    if not unpacker.eof:
        raise RequestError(msg("the {encoding} body ends before its end", encoding=encoding))
    return content


def _with_base64_ids(value: Any) -> Any:
    """OTLP's JSON writes ids in hex; protobuf's own JSON, which reads it here, wants base64."""
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode()
            if key in _ID_FIELDS and isinstance(item, str)
            else _with_base64_ids(item)
            for key, item in pairs
        }
    if isinstance(value, list):
        return [_with_base64_ids(item) for item in cast("list[Any]", value)]
    return value


def _span(wire: WireSpan, scope: str, service: str) -> Span:
    attributes = _attributes(wire.attributes)
    operation = _OPERATIONS.get(str(attributes.get("gen_ai.operation.name")), SpanKind.OTHER)
    kind = _KINDS.get(str(attributes.get(SPAN_KIND, "")).upper(), operation)
    return Span(
        trace_id=wire.trace_id.hex(),
        span_id=wire.span_id.hex(),
        parent_span_id=wire.parent_span_id.hex() or None,
        name=wire.name[:1024],
        kind=kind,
        status=_STATUS.get(wire.status.code, SpanStatus.UNSET),
        message=wire.status.message[:MAX_VALUE_CHARS] or None,
        start_ns=_nanoseconds(wire.start_time_unix_nano),
        duration_ns=max(0, _nanoseconds(wire.end_time_unix_nano) - _nanoseconds(wire.start_time_unix_nano)),
        rollout_id=_identity(attributes, ROLLOUT_ID),
        sample_id=_identity(attributes, SAMPLE_ID),
        attempt_id=_identity(attributes, ATTEMPT_ID),
        attributes=attributes,
        events=tuple(
            {
                "name": event.name[:1024],
                "time_ns": _nanoseconds(event.time_unix_nano),
                "attributes": _attributes(event.attributes),
            }
            for event in wire.events[:MAX_EVENTS]
        ),
        scope=scope,
        service=service,
    )


def _nanoseconds(value: int) -> int:
    """As the database holds them: 63 bits."""
    return min(value, 2**63 - 1)


def _identity(attributes: Mapping[str, Any], key: str) -> str | None:
    value = attributes.get(key)
    return str(value)[:512] if value not in (None, "") else None


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        if len(found) == MAX_ATTRIBUTES:
            break
        found[pair.key[:256]] = _value(pair.value)
    return found


def _value(value: AnyValue, depth: int = 0) -> Any:
    which = value.WhichOneof("value")
    if which == "string_value":
        return value.string_value[:MAX_VALUE_CHARS]
    if which is None or depth > 8:
        return None
    if which == "array_value":
        return [_value(one, depth + 1) for one in value.array_value.values[:MAX_ATTRIBUTES]]
    if which == "kvlist_value":
        pairs = value.kvlist_value.values[:MAX_ATTRIBUTES]
        return {pair.key[:256]: _value(pair.value, depth + 1) for pair in pairs}
    if which == "bytes_value":
        return value.bytes_value[:MAX_VALUE_CHARS].hex()
    return getattr(value, which)


def serialized(request: ExportTraceServiceRequest, wanted: Sequence[bool]) -> bytes:
    """For who passes it on: the spans that are `wanted`, in the order of `spans_of`, each as it came; always
    protobuf, whatever it came as."""
    if all(wanted):
        return request.SerializeToString()
    answers = iter(wanted)
    found = ExportTraceServiceRequest()
    for batch in request.resource_spans:
        scopes: list[ScopeSpans] = []
        for scoped in batch.scope_spans:
            spans = [one for one in scoped.spans if next(answers)]
            if spans:
                scopes.append(ScopeSpans(scope=scoped.scope, spans=spans, schema_url=scoped.schema_url))
        if scopes:
            found.resource_spans.add(resource=batch.resource, scope_spans=scopes, schema_url=batch.schema_url)
    return found.SerializeToString()
