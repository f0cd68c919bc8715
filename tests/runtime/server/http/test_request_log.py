"""A request's record: its id, log line, span and the engine's figures."""

from __future__ import annotations

import asyncio
import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from mlcc.errors import DeviceError
from mlcc.server.asgi import WRITER
from mlcc.server.auth.keyring import TENANT
from mlcc.server.observability.logs import JsonLines
from mlcc.server.observability.metrics import EngineCollector
from mlcc.server.observability.request_log import HEADER, RequestLog, RequestRecord


class Records:
    def __init__(self) -> None:
        self.began_with: list[RequestRecord] = []
        self.found: list[RequestRecord] = []

    def began(self, record: RequestRecord, scope: Any, /) -> None:
        self.began_with.append(record)

    def ended(self, record: RequestRecord, /) -> None:
        self.found.append(record)


def logged(
    path: str = "/v1/models", name: str = "", kind: str = "http", **state: Any
) -> tuple[Records, list[Any]]:
    """The records and messages of one answer of two pieces, which takes 20 ms to begin and 20 more
    to end."""
    records, sent = Records(), list[Any]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {}).update(state)
        await asyncio.sleep(0.02)
        await send({"type": "http.response.start", "status": 207, "headers": [(b"a", b"b")]})
        await asyncio.sleep(0.02)
        for body in (b"abc", b"de"):
            await send({"type": "http.response.body", "body": body})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": kind, "method": "GET", "path": path, "query_string": b"key=secret",
             "client": ("9.9.9.9", 1), "headers": [(HEADER.encode(), name.encode())]}  # fmt: skip
    asyncio.run(RequestLog(app, [records])(scope, None, send))  # type: ignore[arg-type]
    return records, sent


def test_a_record_has_the_size_times_and_key_of_its_answer() -> None:
    records, sent = logged(**{TENANT: "mine", WRITER: SimpleNamespace(sent=100)})
    (record,) = records.found
    assert records.began_with == [record]
    assert (record.status, record.sent, record.key, record.client) == (207, 105, "mine", "9.9.9.9")
    assert 0.02 <= record.to_first <= record.total - 0.02 < 60
    headers = dict(sent[0]["headers"])
    assert headers == {b"a": b"b", HEADER.encode(): record.id.encode()}
    assert [message["body"] for message in sent[1:]] == [b"abc", b"de"]


@pytest.mark.parametrize(
    ("given", "taken"), [("mine-1", True), ("a" * 128, True), ("a" * 129, False), ("a b", False)]
)
def test_an_id_is_taken_from_the_client_if_it_is_short_and_printable(
    given: str, taken: bool
) -> None:
    (record,) = logged(name=given)[0].found
    assert record.id == given if taken else len(record.id) == 28 and record.id.startswith("req-")


def test_what_is_no_request_passes() -> None:
    records, sent = logged(kind="lifespan")
    assert not records.found and len(sent) == 3 and len(sent[0]["headers"]) == 1


def test_a_log_line_is_one_line_without_the_query(caplog: pytest.LogCaptureFixture) -> None:
    path = '/a"b\n\x1b[31m' + "c" * 300
    with caplog.at_level(logging.INFO, "mlcc.access"):
        logged(path, "mine", **{TENANT: "k"})
    (line,) = caplog.records
    text = line.getMessage()
    assert text.startswith('9.9.9.9 "GET /a%22b') and "key='k'" in text and "secret" not in text
    assert "\n" not in text and "\x1b" not in text and text.count("c") < 200
    entry = json.loads(JsonLines().format(line))
    assert (entry["status"], entry["bytes"], entry["key"]) == (207, 5, "k")
    assert 0.02 <= entry["first_seconds"] <= entry["seconds"] and len(entry["path"]) <= 206
    assert len(text) < 320


def engine(ready: bool, counters: Any) -> Any:
    async def counted() -> Any:
        if isinstance(counters, Exception):
            raise counters
        return counters

    return SimpleNamespace(ready=ready, counters=counted, asleep=None)


def test_the_figures_of_engines_that_are_up_down_busy_or_replicated() -> None:
    collector = EngineCollector()
    replicas = {"r0": {"waiting": 1}, "r1": {"waiting": 2}}
    clients = {
        "one": engine(True, {"engine": {"waiting": 7}}),
        "dead": engine(False, DeviceError("gone")),
        "busy": engine(True, {"engine": None}),
    }
    several = {"many": engine(True, {"engine": {"retried": 4, "waiting": 3}, "replicas": replicas})}

    def found(name: str) -> dict[tuple[str, ...], float]:
        return {
            tuple(sample.labels.values()): sample.value
            for metric in collector.collect()
            for sample in metric.samples
            if sample.name == name
        }

    asyncio.run(collector.refresh(clients))
    assert found("mlcc_engine_up") == {("one",): 1, ("dead",): 0, ("busy",): 1}
    waiting, retried = _names("waiting"), _names("retried")
    assert found(waiting) == {("one",): 7}
    asyncio.run(collector.refresh(clients | several))
    assert found(waiting) == {("one", ""): 7, ("many", "r0"): 1, ("many", "r1"): 2}
    assert found(retried) == {("many", ""): 4}


def _names(field: str) -> str:
    from mlcc.server.observability import metrics

    if field in metrics._GAUGES:
        return f"mlcc_engine_{metrics._GAUGES[field][0]}"
    return f"mlcc_engine_{metrics._COUNTERS[field][0]}_total"


@pytest.mark.parametrize(
    ("status", "failed"), [(0, True), (200, False), (499, False), (500, True), (503, True)]
)
def test_a_span_has_the_addresses_sizes_and_outcome(status: int, failed: bool) -> None:
    pytest.importorskip("opentelemetry.sdk", reason="needs OpenTelemetry: pip install mlcc[otel]")
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from mlcc.server.observability.traces import Traces

    traces, spans = Traces(), InMemorySpanExporter()
    traces._provider._active_span_processor._span_processors = (SimpleSpanProcessor(spans),)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    record = RequestRecord("req-1", "GET", "/v1/models/toy", "9.9.9.9")
    traces.began(record, {"headers": [(b"traceparent", parent.encode())]})
    record.status, record.sent, record.to_first, record.key = status, 12, 0.5, "k"
    traces.ended(record)
    (span,) = spans.get_finished_spans()
    attributes = dict(span.attributes or {})
    assert attributes.pop("http.route").startswith("/v1/models/")
    assert attributes == {
        "http.request.method": "GET", "url.path": "/v1/models/toy", "client.address": "9.9.9.9",
        "mlcc.request_id": "req-1", "http.response.status_code": status,
        "http.response.body.size": 12, "mlcc.first_seconds": 0.5, "mlcc.key": "k",
    }  # fmt: skip
    assert span.parent is not None and f"{span.parent.span_id:x}" == "b7ad6b7169203331"
    assert (span.status.status_code.name == "ERROR") == failed
    assert span.name.startswith("GET /v1/models/") and not traces._spans
    traces.close()
