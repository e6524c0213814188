"""Spans of rollouts through OpenTelemetry's SDK: given ids and times, made by its tracer.

The one module here that needs the extra `otel`.
"""

from collections.abc import Sequence

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from houston_daemon.telemetry.rollout_spans import RolloutSpan
from houston_shared.secret_redaction import redact_all

SERVICE_NAME = "houston"


def otlp_exporter(address: str) -> SpanExporter:
    """To a collector, over HTTP; headers and certificates by OpenTelemetry's own variables."""
    return OTLPSpanExporter(endpoint=address)


class SpanRecording:
    """Makes spans of the SDK and hands them to an exporter at once."""

    def __init__(self, version: str) -> None:
        """version: of Houston."""
        self._ids = _GivenIds()
        self._ended = _EndedSpans()
        about = {"service.name": SERVICE_NAME, "service.version": version}
        provider = TracerProvider(
            resource=Resource.create(about), sampler=ALWAYS_ON, id_generator=self._ids
        )
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("houston", version)

    def export(self, spans: Sequence[RolloutSpan], exporter: SpanExporter) -> bool:
        """Whether the exporter took all of them."""
        self._ended.spans.clear()
        for span in spans:
            self._record(span)
        return exporter.export(tuple(self._ended.spans)) is SpanExportResult.SUCCESS

    def _record(self, span: RolloutSpan) -> None:
        self._ids.trace, self._ids.span = span.trace, span.id
        otel_span = self._tracer.start_span(
            span.name,
            context=_context_of(span),
            kind=SpanKind.CLIENT if span.client else SpanKind.INTERNAL,
            attributes=redact_all(span.attributes),
            start_time=span.start,
        )
        for event in span.events:
            otel_span.add_event(event.name, redact_all(event.attributes), event.at)
        if span.error:
            otel_span.set_status(Status(StatusCode.ERROR, span.error))
        otel_span.end(span.end)


def _context_of(span: RolloutSpan) -> Context:
    """What a span is in: its parent, which may have been sent long ago, or not yet."""
    if not span.parent:
        return Context()
    parent = SpanContext(span.trace, span.parent, True, TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(parent), Context())


class _GivenIds(IdGenerator):
    """The ids of the span that is made next."""

    trace = span = 0

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class _EndedSpans(SpanProcessor):
    """Keeps spans until they are exported."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)
