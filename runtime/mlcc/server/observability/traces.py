"""OpenTelemetry traces: a span per request, exported by OTLP over HTTP. The endpoint and service
name come from the standard variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_SERVICE_NAME, ...). Spans
contain no prompts or answers.

Needs the extra `otel`, which is imported only with `--otel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import Scope

from mlcc import __version__
from mlcc.server.asgi import headers_of
from mlcc.server.http.errors import ROUTER
from mlcc.server.observability.request_log import RequestRecord
from mlcc.util.extras import require

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Traces:
    """A `Listener` of the request log. Raises UnsupportedError if the packages are not
    installed."""

    def __init__(self) -> None:
        require("opentelemetry.sdk", "otel", "--otel")
        require("opentelemetry.exporter.otlp.proto.http", "otel", "--otel")
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        named = Resource({SERVICE_NAME: "mlcc"}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=named)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("mlcc", __version__)
        self._context = TraceContextTextMapPropagator()
        self._spans: dict[int, Span] = {}

    def began(self, record: RequestRecord, scope: Scope, /) -> None:
        """Start a span in the caller's trace (W3C Trace Context)."""
        from opentelemetry.trace import SpanKind

        route = ROUTER.pattern(record.path)
        about = {
            "http.request.method": record.method,
            "url.path": record.path,
            "client.address": record.client,
            "mlcc.request_id": record.id,
            **({"http.route": route} if route else {}),
        }
        self._spans[id(record)] = self._tracer.start_span(
            f"{record.method} {route}".strip(),
            context=self._context.extract(headers_of(scope)),
            kind=SpanKind.SERVER,
            attributes=about,
        )

    def ended(self, record: RequestRecord, /) -> None:
        """End the span."""
        from opentelemetry.trace import StatusCode

        span = self._spans.pop(id(record))
        span.set_attribute("http.response.status_code", record.status)
        span.set_attribute("http.response.body.size", record.sent)
        span.set_attribute("mlcc.first_seconds", record.to_first)
        if record.key:
            span.set_attribute("mlcc.key", record.key)
        if record.status >= 500 or not record.status:
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Export the remaining spans."""
        self._provider.shutdown()
