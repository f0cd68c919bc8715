"""/metrics and traces, as received by a real scraper and a real collector."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain
from starlette.requests import Request

from mlcc.server.observability.metrics import Metrics
from tests.runtime.server.helpers.server_process import RunningServer, eventually, idle, running

CHAT = {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 5, "ignore_eos": True}
WHO = {"model": "toy", "key": ""}
DASHBOARD = Path(__file__).parents[4] / "deploy" / "grafana" / "dashboard.json"


def samples(server: RunningServer) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = plain(httpx.get(f"{server.url}/metrics").text)
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def key(name: str, **labels: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    return name, tuple(sorted(labels.items()))


def test_it_is_written_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many keys and models it takes long, and the event loop goes on meanwhile."""
    found = Metrics(lambda: {})
    threads = list[threading.Thread]()

    def collect() -> Iterator[Metric]:
        threads.append(threading.current_thread())
        yield from ()

    monkeypatch.setattr(found._found, "collect", collect)
    for accept in (b"text/plain", b"application/openmetrics-text"):
        request = Request({"type": "http", "headers": [(b"accept", accept)]})
        response = asyncio.run(found.show(request))
        assert accept in response.headers["content-type"].encode()
    assert len(threads) == 2 and threading.main_thread() not in threads


def test_what_requests_took() -> None:
    with running() as server:
        for stream in (False, True):
            httpx.post(f"{server.url}/v1/chat/completions", json={**CHAT, "stream": stream})
        httpx.get(f"{server.url}/no/such/place")
        assert eventually(lambda: idle(server))
        found = samples(server)
        assert found[key("mlcc_answers_total", **WHO, reason="length")] == 2
        assert found[key("mlcc_completion_tokens_total", **WHO)] == 10
        prompt = found[key("mlcc_prompt_tokens_total", **WHO)]
        cached = found[key("mlcc_cached_prompt_tokens_total", **WHO)]
        assert (
            prompt > cached >= 0
            and found[key("mlcc_engine_cached_tokens_total", model="toy")] == cached
        )
        for name in ("time_to_first_token", "time_per_token", "answer"):
            assert found[key(f"mlcc_{name}_seconds_count", **WHO)] == 2
        assert found[key("mlcc_engine_up", model="toy")] == 1
        assert found[key("mlcc_engine_sampled_tokens_total", model="toy")] == 10
        assert found[key("mlcc_engine_batch_size", model="toy")] == 0
        assert found[key("mlcc_engine_pages", model="toy")] == 256
        assert found[key("mlcc_engine_preemptions_total", model="toy")] == 0
        asked = {"method": "POST", "address": "/v1/chat/completions", "status": "200"}
        assert found[key("mlcc_http_requests_total", **asked)] == 2
        other = {"method": "GET", "address": "other", "status": "404"}
        assert found[key("mlcc_http_requests_total", **other)] == 1, "no stranger makes new series"
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        modern = httpx.get(f"{server.url}/metrics", headers=accept)
        assert "openmetrics-text" in modern.headers["content-type"]
        assert {family.name for family in openmetrics(modern.text)} >= {"mlcc_answers"}


_ROUTED = ("routed_requests", "routed_hit_tokens", "retried_requests")
"""Metrics of several engines only; tests/runtime/scale/test_deployments.py tests them."""


def test_the_dashboard_asks_for_what_there_is() -> None:
    with running() as server:
        httpx.post(f"{server.url}/v1/chat/completions", json=CHAT)
        known = {name for name, _ in samples(server)} | {"mlcc_engine_ended_total"}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    known |= {f"mlcc_engine_{name}_total" for name in _ROUTED}
    names = {name for expr in asked for name in re.findall(r"\bmlcc_\w+", expr)}
    assert len(names) > 10 and names <= known


class Collector(BaseHTTPRequestHandler):
    """A collector of OTLP over HTTP."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.found.append((self.path, body))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        pass


def test_a_span_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(
        "opentelemetry.exporter.otlp.proto.http",
        reason="needs OpenTelemetry: pip install mlcc[otel]",
    )
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        collector.found = []  # type: ignore[attr-defined]
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}"
        )
        monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            monkeypatch.delenv(name)
        with running("--otel") as server:
            headers = {"traceparent": f"00-{trace}-{parent}-01", "x-request-id": "mine"}
            httpx.post(f"{server.url}/v1/chat/completions", json=CHAT, headers=headers)
            server.process.terminate()
            assert server.process.wait(60) == 0
        collector.shutdown()
        (path, body), *_ = collector.found  # type: ignore[attr-defined]
    assert path == "/v1/traces" and b"secret" not in body
    sent = ExportTraceServiceRequest.FromString(body).resource_spans[0]
    named = {one.key: one.value.string_value for one in sent.resource.attributes}
    assert named["service.name"] == "chat"
    span = sent.scope_spans[0].spans[0]
    assert span.name == "POST /v1/chat/completions"
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (trace, parent)
    about = {one.key: one.value for one in span.attributes}
    assert about["mlcc.request_id"].string_value == "mine"
    assert about["http.response.status_code"].int_value == 200
