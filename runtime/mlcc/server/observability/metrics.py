"""/metrics in Prometheus' text format: request metrics by model and key name, and engine
statistics, by replica if there are several. Engine counters restart at 0 with the engine's
process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as PLAIN_TYPE
from prometheus_client.exposition import generate_latest as as_plain
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as as_openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from mlcc.errors import MlccError
from mlcc.server.http.errors import ROUTER
from mlcc.server.observability.request_log import RequestRecord
from mlcc.service.engine_client import EngineClient
from mlcc.service.observer import FinishedRequest

Clients = Callable[[], Mapping[str, EngineClient]]
"""Returns the running engines, by model name."""

EngineStats = Mapping[str, Mapping[str, Any]]
"""Statistics of an engine by replica name; "" if there are no replicas."""

FIRST_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
PER_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1)
REQUEST_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

_GAUGES = {
    "waiting": ("queue", "Requests that wait in the engine."),
    "running": ("batch_size", "Running requests: the size of the batch."),
    "in_flight": ("steps_in_flight", "Steps that the device computes or has queued."),
    "pages": ("pages", "Pages of the cache."),
    "pages_free": ("pages_free", "Pages that no running request uses."),
    "pages_kept": ("pages_kept", "Free pages that the prefix cache still indexes."),
}
_COUNTERS = {
    "steps": ("steps", "Committed steps."),
    "requests": ("requests", "Requests accepted by the engine."),
    "computed_tokens": ("computed_tokens", "Computed tokens: prompts, answers, recomputation."),
    "sampled_tokens": ("sampled_tokens", "Tokens of answers."),
    "cached_tokens": ("cached_tokens", "Prompt tokens found in the prefix cache."),
    "drafted_tokens": ("drafted_tokens", "Draft tokens that were verified."),
    "accepted_tokens": ("accepted_tokens", "Draft tokens that were accepted."),
    "preemptions": ("preemptions", "Requests preempted because pages ran out."),
    "answers": ("answers", "Answers that were completed."),
    "queue_s": ("queue_seconds", "Seconds from arrival to the first step, of these answers."),
    "compute_s": ("compute_seconds", "Seconds from the first step to the end, of these answers."),
    "routed": ("routed_requests", "Requests routed to this replica."),
    "expected_hits": (
        "routed_hit_tokens",
        "Prompt tokens that the replica was expected to have cached.",
    ),
    "retried": ("retried_requests", "Requests sent to another replica after a loss."),
}
"""Fields of `mlcc.engine.events.Stats` and of `mlcc.scale`: name after mlcc_engine_, and
description."""


class Metrics:
    """One per server; belongs to its event loop. `of` returns a model's observer."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._found = EngineCollector()
        self.registry = CollectorRegistry()
        self.registry.register(self._found)
        labels, registry = ("model", "key"), self.registry
        self.answers = Counter(
            "mlcc_answers", "Answers that ended, by how.", (*labels, "reason"), registry=registry
        )
        self.batch_answers = Counter(
            "mlcc_batch_answers",
            "Lines of batches among the answers; times leave them out.",
            labels,
            registry=registry,
        )
        self.prompt_tokens = Counter(
            "mlcc_prompt_tokens", "Tokens of prompts.", labels, registry=registry
        )
        self.cached_tokens = Counter(
            "mlcc_cached_prompt_tokens",
            "Tokens of prompts that the prefix cache had.",
            labels,
            registry=registry,
        )
        self.completion_tokens = Counter(
            "mlcc_completion_tokens", "Tokens of answers.", labels, registry=registry
        )
        self.first_token = Histogram(
            "mlcc_time_to_first_token_seconds",
            "From the engine's queue to the first token.",
            labels,
            buckets=FIRST_TOKEN_S,
            registry=registry,
        )
        self.per_token = Histogram(
            "mlcc_time_per_token_seconds",
            "Between the tokens of an answer, on its average.",
            labels,
            buckets=PER_TOKEN_S,
            registry=registry,
        )
        self.answer_seconds = Histogram(
            "mlcc_answer_seconds",
            "From the engine's queue to the end of an answer.",
            labels,
            buckets=REQUEST_S,
            registry=registry,
        )
        self.restarts = Counter(
            "mlcc_engine_ended", "Engine processes that ended.", ["model"], registry=registry
        )
        self.http = Counter(
            "mlcc_http_requests",
            "Requests, by address and status.",
            ("method", "address", "status"),
            registry=registry,
        )
        self.in_flight = Gauge(
            "mlcc_http_requests_in_hand", "Requests being answered.", registry=registry
        )

    def of(self, model: str) -> ModelMetrics:
        """Return the observer of a model's engine."""
        return ModelMetrics(self, model)

    def began(self, record: RequestRecord, scope: Scope, /) -> None:
        self.in_flight.inc()

    def ended(self, record: RequestRecord, /) -> None:
        self.in_flight.dec()
        method = record.method if record.method in _METHODS else "other"
        address = ROUTER.pattern(record.path) or "other"
        self.http.labels(method, address, str(record.status)).inc()

    async def show(self, request: Request) -> Response:
        """The endpoint, in the format that the Accept header asks for."""
        await self._found.refresh(self._clients())
        is_open = "application/openmetrics-text" in request.headers.get("accept", "")
        text: bytes = await asyncio.to_thread(
            as_openmetrics if is_open else as_plain, self.registry
        )
        return Response(text, media_type=OPENMETRICS_TYPE if is_open else PLAIN_TYPE)


class ModelMetrics:
    """An `Observer` that records one model's metrics."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self._model = model

    def first_token(self, tenant: str, seconds: float, /) -> None:
        self._metrics.first_token.labels(self._model, tenant).observe(seconds)

    def done(self, done: FinishedRequest, /) -> None:
        metrics, labels = self._metrics, (self._model, done.tenant)
        metrics.answers.labels(*labels, done.reason).inc()
        metrics.prompt_tokens.labels(*labels).inc(done.prompt_tokens)
        metrics.cached_tokens.labels(*labels).inc(done.cached_tokens)
        metrics.completion_tokens.labels(*labels).inc(done.completion_tokens)
        if done.background:
            metrics.batch_answers.labels(*labels).inc()
            return
        metrics.answer_seconds.labels(*labels).observe(done.total)
        if (per_token := done.per_token) is not None:
            metrics.per_token.labels(*labels).observe(per_token)

    def restarted(self) -> None:
        self._metrics.restarts.labels(self._model).inc()


class EngineCollector(Collector):
    """Prometheus collector of the engines' last statistics."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[bool, EngineStats]] = {}
        self._asleep: dict[str, bool] = {}

    async def refresh(self, clients: Mapping[str, EngineClient]) -> None:
        """Query all engines in parallel. An engine that is down, or in a long step, reports
        nothing."""
        stats = await asyncio.gather(*map(_stats_of, clients.values()))
        self._asleep = {model: client.asleep is not None for model, client in clients.items()}
        self._found = {
            model: (client.ready, found)
            for (model, client), found in zip(clients.items(), stats, strict=True)
        }

    def collect(self) -> Iterable[Metric]:
        """prometheus_client's collector interface."""
        up = GaugeMetricFamily("mlcc_engine_up", "Whether the engine answers.", labels=["model"])
        for model, (is_up, _) in self._found.items():
            up.add_metric([model], float(is_up))
        yield up
        asleep = GaugeMetricFamily(
            "mlcc_engine_sleeping", "Whether it is out of memory until /wake_up.", labels=["model"]
        )
        for model, is_asleep in self._asleep.items():
            asleep.add_metric([model], float(is_asleep))
        yield asleep
        yield from self._families(_GAUGES, GaugeMetricFamily)
        yield from self._families(_COUNTERS, CounterMetricFamily)

    def _families(
        self,
        table: Mapping[str, tuple[str, str]],
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    ) -> Iterator[Metric]:
        each = [(model, *one) for model, (_, stats) in self._found.items() for one in stats.items()]
        labels = ["model", "replica"] if any(replica for _, replica, _ in each) else ["model"]
        for field, (name, about) in table.items():
            family = kind(f"mlcc_engine_{name}", about, labels=labels)
            for model, replica, stats in each:
                if field in stats:
                    family.add_metric([model, replica][: len(labels)], stats[field])
            yield family


async def _stats_of(client: EngineClient) -> EngineStats:
    try:
        stats = await client.counters()
    except MlccError:
        return {}
    total = stats["engine"] or {}
    if each := stats.get("replicas"):
        return {**each, "": {"retried": total["retried"]}}
    return {"": total}


_METHODS = ("GET", "HEAD", "POST", "OPTIONS", "DELETE", "PUT", "PATCH")
