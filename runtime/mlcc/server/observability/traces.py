"""A span of OpenTelemetry for each request, sent to a collector by OTLP over HTTP. Where that is,
and what the service is called, the standard's variables say (OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_SERVICE_NAME, ...). Nothing of what was asked or answered is in a span.

Needs the extra `otel`; nothing of it is imported without `--otel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.types import Scope

from mlcc import __version__
from mlcc.server.asgi import headers_of
from mlcc.server.http.errors import ROUTES
from mlcc.server.observability.request_log import RequestRecord
from mlcc.util.extras import require

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Traces:
    """A `Listener` of the request log. Raises UnsupportedError if the packages are not here."""

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

    def began(self, exchange: RequestRecord, scope: Scope, /) -> None:
        """The span begins, in the trace that the caller names (W3C Trace Context)."""
        from opentelemetry.trace import SpanKind

        route = ROUTES.pattern(exchange.path)
        about = {
            "http.request.method": exchange.method,
            "url.path": exchange.path,
            "client.address": exchange.client,
            "mlcc.request_id": exchange.id,
            **({"http.route": route} if route else {}),
        }
        self._spans[id(exchange)] = self._tracer.start_span(
            f"{exchange.method} {route}".strip(),
            context=self._context.extract(headers_of(scope)),
            kind=SpanKind.SERVER,
            attributes=about,
        )

    def ended(self, exchange: RequestRecord, /) -> None:
        """The span ends."""
        from opentelemetry.trace import StatusCode

        span = self._spans.pop(id(exchange))
        span.set_attribute("http.response.status_code", exchange.status)
        span.set_attribute("http.response.body.size", exchange.sent)
        span.set_attribute("mlcc.first_seconds", exchange.to_first)
        if exchange.key:
            span.set_attribute("mlcc.key", exchange.key)
        if exchange.status >= 500 or not exchange.status:
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
