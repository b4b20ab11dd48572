"""Work -> a span around it that can never fail the work.

Whatever goes wrong while a span is made or written is counted; five times in a row, and nothing is traced for
a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from strop.schema.span import SPAN_KIND, SpanKind
from strop.tracing.content import cut
from strop.tracing.tracing import tracer, warn_once

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

_MAX_FAILURES = 5
_PAUSE_S = 60.0

Attributes = dict[str, Any]


class _Breaker:
    """Closed while spans work; open for a while after they have failed too often."""

    def __init__(self) -> None:
        self._failures = 0
        self._open_until = 0.0

    def allows(self) -> bool:
        return time.monotonic() >= self._open_until

    def failed(self, error: Exception) -> None:
        self._failures += 1
        warn_once(f"a span could not be written: {type(error).__name__}: {error}")
        if self._failures >= _MAX_FAILURES:
            self._failures = 0
            self._open_until = time.monotonic() + _PAUSE_S

    def worked(self) -> None:
        self._failures = 0


breaker = _Breaker()


class Recording:
    """A span under way; or nothing, when nothing is traced. No method raises.

    `end` may be called more than once: a stream ends where it is read to its end, or where it is dropped.
    """

    def __init__(self, span: Span | None) -> None:
        self._span = span
        self._ended = False

    @property
    def on(self) -> bool:
        """Whether anything is recorded: what is dear to work out need not be, otherwise."""
        return self._span is not None

    @property
    def span(self) -> Span | None:
        return self._span

    def put(self, make: Callable[[], Attributes]) -> None:
        """Set attributes; None values are left out. `make` runs only when something is recorded."""
        span = self._span
        if span is None:
            return
        try:
            span.set_attributes({key: value for key, value in make().items() if value is not None})
        except Exception as error:  # noqa: BLE001  a span must not fail the work it is of
            breaker.failed(error)

    def ok(self) -> None:
        self._status(None)

    def failed(self, error: BaseException) -> None:
        """Say how the work ended, with the exception as one event."""
        self._status(error)

    def end(self) -> None:
        if self._span is None or self._ended:
            return
        self._ended = True
        try:
            self._span.end()
            breaker.worked()
        except Exception as error:  # noqa: BLE001  as above
            breaker.failed(error)

    def _status(self, error: BaseException | None) -> None:
        span = self._span
        if span is None:
            return
        try:
            from opentelemetry.trace import Status, StatusCode

            if error is None:
                span.set_status(Status(StatusCode.OK))
                return
            span.record_exception(error)
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, cut(f"{type(error).__name__}: {error}", 4096)))
        except Exception as failure:  # noqa: BLE001  as above
            breaker.failed(failure)


def begin(name: str, kind: SpanKind, *, client: bool = False, otel_kind: object = None) -> Recording:
    """Start a span below the current one. It becomes current only inside `current`.

    For OpenTelemetry it is of kind `otel_kind`; without one, or with something else, CLIENT where it is one,
    else INTERNAL.
    """
    if not breaker.allows():
        return Recording(None)
    try:
        made = tracer()
        if made is None:
            return Recording(None)
        from opentelemetry.trace import SpanKind as OtelKind

        chosen = OtelKind.CLIENT if client else OtelKind.INTERNAL
        if isinstance(otel_kind, OtelKind):
            chosen = otel_kind
        elif otel_kind is not None:  # it would end the sending of all spans that go with this one
            warn_once(
                f"otel_span_kind={otel_kind!r} has no effect; it is not an opentelemetry.trace.SpanKind"
            )
        return Recording(made.start_span(name, kind=chosen, attributes={SPAN_KIND: kind.value}))
    except Exception as error:  # noqa: BLE001  a span must not fail the work it is of
        breaker.failed(error)
        return Recording(None)


@contextmanager
def current(recording: Recording, context: Context | None = None) -> Generator[None]:
    """Spans that begin in here stand below this one; with `context`, its baggage travels with them."""
    span = recording.span
    if span is None:
        yield
        return
    from opentelemetry import context as contexts
    from opentelemetry.trace import set_span_in_context

    token = contexts.attach(set_span_in_context(span, context))
    try:
        yield
    finally:
        contexts.detach(token)
