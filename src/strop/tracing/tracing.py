"""Environment -> the tracer that everything here makes its spans with, or none.

On by default and wherever an exporter has an address; `ENABLE_TRAJECTORY=false` turns it off. Loads
OpenTelemetry when the first span is made and not before. Spans leave on a thread of their own through a
bounded queue: a receiver that is slow or dead costs spans, never time of a rollout.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

from strop.schema.span import IDS, JOB_ID
from strop.tracing.content import max_chars

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

SCOPE = "strop.tracing"
SWITCH = "ENABLE_TRAJECTORY"
OBSERVED = "_strop_observed"
"""Attribute of a `process` that makes its own spans."""
CONTENT_SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

_YES, _NO = frozenset({"", "true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
_NO_CONTENT = frozenset({"no_content", "event_only", "false"})

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_ready: set[int] = set()
"""Providers that have our processors, by their ids."""


def is_on() -> bool:
    """Whether functions are to be traced at all."""
    value = os.environ.get(SWITCH, "").strip().lower()
    if value not in _YES | _NO:
        warn_once(f"{SWITCH}={value!r} is neither true nor false; tracing stays on")
    return value not in _NO


def is_observed(process: object) -> bool:
    """Whether a `process` makes its own spans: decorated by `observe_processor`, ours or that of DashScope's
    package, under whatever other decorators."""
    while process is not None:
        if getattr(process, OBSERVED, False):
            return True
        function = getattr(process, "__func__", process)
        module = str(getattr(function, "__globals__", {}).get("__name__", ""))
        if module.startswith("dashscope.") and "observability" in module:
            return True
        process = getattr(function, "__wrapped__", None)
    return False


def captures_content() -> bool:
    """Whether spans hold messages, arguments and results, and not only their numbers."""
    return os.environ.get(CONTENT_SWITCH, "").strip().lower() not in _NO_CONTENT


def endpoint() -> str | None:
    """Where spans are sent, as the environment says."""
    own = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return own or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None


def tracer() -> Tracer | None:
    """What spans are made with; None when tracing is off or nothing would take them.

    Side effects:
        At the first call with an address: makes a TracerProvider (or takes the process's own) and starts the
        thread that sends.
    """
    if not is_on():
        return None
    if endpoint() is None and "opentelemetry.sdk.trace" not in sys.modules:
        return None
    provider = _provider()
    return None if provider is None else _tracer_of(provider)


def prepare() -> None:
    """Make the tracer ready where anything loaded so far may trace: the first call shall not wait for
    that."""
    ours = ("observe", "clients", "tools")
    traces = any(f"strop.tracing.{name}" in sys.modules for name in ours)
    if (traces or "opentelemetry" in sys.modules) and endpoint() is not None:
        tracer()


def flush(timeout_s: float = 5.0) -> bool:
    """Send what waits. Returns whether all has left."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return True
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = trace.get_tracer_provider()
    return provider.force_flush(int(timeout_s * 1000)) if isinstance(provider, TracerProvider) else True


@cache
def warn_once(text: str) -> None:
    """Say it once a process: spans are many."""
    _log.warning(text)


@cache
def _tracer_of(provider: TracerProvider) -> Tracer:
    return provider.get_tracer(SCOPE)


def _provider() -> TracerProvider | None:
    """The process's provider, with our ids and, where there is an address, our exporter."""
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError as error:
        warn_once(
            f"nothing is traced: {error}; "
            "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
        )
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider) and id(provider) in _ready:
        return provider
    with _lock:
        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            if endpoint() is None:
                return None
            provider = _new_provider()
            trace.set_tracer_provider(provider)
        if id(provider) not in _ready:
            _add_processors(provider)
            _ready.add(id(provider))
    return provider


def _new_provider() -> TracerProvider:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider

    resource = Resource.create({"service.instance.id": f"worker-{os.getpid()}"})
    return TracerProvider(resource=resource, span_limits=SpanLimits(max_attribute_length=max_chars()))


def _add_processors(provider: TracerProvider) -> None:
    provider.add_span_processor(_ids_processor())
    if endpoint() is None:
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        warn_once(f"spans are sent nowhere: {error}; pip install opentelemetry-exporter-otlp-proto-http")
        return
    for name in ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk.trace.export"):
        logging.getLogger(name).addFilter(_said_before)  # else every batch that is lost prints a traceback
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))


def _ids_processor() -> Any:
    from opentelemetry import baggage
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import Span, SpanProcessor

    class Ids(SpanProcessor):
        """Copies the ids of the rollout, which travel as baggage, onto every span that begins below it."""

        def on_start(self, span: Span, parent_context: Context | None = None) -> None:
            for key in IDS:
                value = baggage.get_baggage(key, parent_context)
                if value is None and key == JOB_ID:
                    value = os.environ.get("STROP_JOB_ID")
                if isinstance(value, str) and value:
                    span.set_attribute(key, value)

    return Ids()


_told: set[tuple[str, int]] = set()


def _said_before(record: logging.LogRecord) -> bool:
    """Let each complaint of the exporter through once, in one line."""
    place = (record.name, record.lineno)
    if place in _told:
        return False
    _told.add(place)
    record.exc_info = None
    return True
