"""/metrics, in Prometheus' text format: what requests took, by model and key's name, and what the
engine has and does, or each of its replicas. Counters of an engine begin again at 0 when its
process does.
"""

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
from mlcc.server.http.errors import ROUTES
from mlcc.server.observability.request_log import RequestRecord
from mlcc.service.jobs.engine_client import EngineClient
from mlcc.service.observer import Done

Clients = Callable[[], Mapping[str, EngineClient]]
"""The engines that there are now, by the name of their model."""

EngineStats = Mapping[str, Mapping[str, Any]]
"""What an engine told of itself: under the name of a replica, or "" where there are none."""

FIRST_TOKEN_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
PER_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1)
REQUEST_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

_GAUGES = {
    "waiting": ("queue", "Requests that wait in the engine."),
    "running": ("batch_size", "Requests that are being answered together."),
    "in_flight": ("steps_in_flight", "Steps that the device has been given and not ended."),
    "pages": ("pages", "Pages of the cache."),
    "pages_free": ("pages_free", "Pages that nothing running holds."),
    "pages_kept": ("pages_kept", "Free pages in which prompts can still be found."),
}
_COUNTERS = {
    "steps": ("steps", "Steps that were committed."),
    "requests": ("requests", "Requests that the engine took."),
    "computed_tokens": ("computed_tokens", "Tokens run: prompts, answers, recomputation."),
    "sampled_tokens": ("sampled_tokens", "Tokens of answers."),
    "cached_tokens": ("cached_tokens", "Tokens of prompts that were found instead of run."),
    "drafted_tokens": ("drafted_tokens", "Tokens that were guessed ahead, and computed."),
    "accepted_tokens": ("accepted_tokens", "Those of them that were right."),
    "preemptions": ("preemptions", "Requests that stepped back because pages ran out."),
    "routed": ("routed_requests", "Requests that were sent to this replica."),
    "hoped": ("routed_hit_tokens", "Tokens of prompts that the replica was hoped to have."),
    "retried": ("retried_requests", "Requests that a replica lost, and another was asked."),
}
"""Fields of `mlcc.engine.events.Stats`, and what `mlcc.scale` adds: name after mlcc_engine_, and
what it is."""


class Metrics:
    """One per server; belongs to its event loop. `of` gives an engine's observer."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._found = EngineCollector()
        self.registry = CollectorRegistry()
        self.registry.register(self._found)
        who, registry = ("model", "key"), self.registry
        self.answers = Counter(
            "mlcc_answers", "Answers that ended, by how.", (*who, "reason"), registry=registry
        )
        self.prompt_tokens = Counter(
            "mlcc_prompt_tokens", "Tokens of prompts.", who, registry=registry
        )
        self.cached_tokens = Counter(
            "mlcc_cached_prompt_tokens",
            "Tokens of prompts that the prefix cache had.",
            who,
            registry=registry,
        )
        self.completion_tokens = Counter(
            "mlcc_completion_tokens", "Tokens of answers.", who, registry=registry
        )
        self.first_token = Histogram(
            "mlcc_time_to_first_token_seconds",
            "From the engine's queue to the first token.",
            who,
            buckets=FIRST_TOKEN_S,
            registry=registry,
        )
        self.per_token = Histogram(
            "mlcc_time_per_token_seconds",
            "Between the tokens of an answer, on its average.",
            who,
            buckets=PER_TOKEN_S,
            registry=registry,
        )
        self.answer_seconds = Histogram(
            "mlcc_answer_seconds",
            "From the engine's queue to the end of an answer.",
            who,
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
        self.in_hand = Gauge(
            "mlcc_http_requests_in_hand", "Requests being answered.", registry=registry
        )

    def of(self, model: str) -> ModelMetrics:
        """The observer of the engine that runs a model."""
        return ModelMetrics(self, model)

    def began(self, exchange: RequestRecord, scope: Scope, /) -> None:
        self.in_hand.inc()

    def ended(self, exchange: RequestRecord, /) -> None:
        self.in_hand.dec()
        method = exchange.method if exchange.method in _METHODS else "other"
        address = ROUTES.pattern(exchange.path) or "other"
        self.http.labels(method, address, str(exchange.status)).inc()

    async def show(self, request: Request) -> Response:
        """The endpoint, in the format that is asked for."""
        await self._found.look(self._clients())
        if "application/openmetrics-text" in request.headers.get("accept", ""):
            told: bytes = as_openmetrics(self.registry)  # type: ignore[no-untyped-call]
            return Response(told, media_type=OPENMETRICS_TYPE)
        return Response(as_plain(self.registry), media_type=PLAIN_TYPE)


class ModelMetrics:
    """An `Observer`: one model's share of the metrics."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self._model = model

    def first_token(self, tenant: str, seconds: float, /) -> None:
        self._metrics.first_token.labels(self._model, tenant).observe(seconds)

    def done(self, done: Done, /) -> None:
        metrics, who = self._metrics, (self._model, done.tenant)
        metrics.answers.labels(*who, done.reason).inc()
        metrics.prompt_tokens.labels(*who).inc(done.prompt_tokens)
        metrics.cached_tokens.labels(*who).inc(done.cached_tokens)
        metrics.completion_tokens.labels(*who).inc(done.completion_tokens)
        metrics.answer_seconds.labels(*who).observe(done.total)
        if (per_token := done.per_token) is not None:
            metrics.per_token.labels(*who).observe(per_token)

    def restarted(self) -> None:
        self._metrics.restarts.labels(self._model).inc()


class EngineCollector(Collector):
    """What the engines told of themselves when they were asked last."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[bool, EngineStats]] = {}

    async def look(self, clients: Mapping[str, EngineClient]) -> None:
        """Ask all at once. One that is in a long step, or gone, tells nothing."""
        told = await asyncio.gather(*map(_stats_of, clients.values()))
        self._found = {
            model: (client.ready, found)
            for (model, client), found in zip(clients.items(), told, strict=True)
        }

    def collect(self) -> Iterable[Metric]:
        """The port of prometheus_client."""
        up = GaugeMetricFamily("mlcc_engine_up", "Whether the engine answers.", labels=["model"])
        for model, (is_up, _) in self._found.items():
            up.add_metric([model], float(is_up))
        yield up
        yield from self._families(_GAUGES, GaugeMetricFamily)
        yield from self._families(_COUNTERS, CounterMetricFamily)

    def _families(
        self,
        table: Mapping[str, tuple[str, str]],
        kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    ) -> Iterator[Metric]:
        each = [(model, *one) for model, (_, told) in self._found.items() for one in told.items()]
        labels = ["model", "replica"] if any(replica for _, replica, _ in each) else ["model"]
        for field, (name, about) in table.items():
            family = kind(f"mlcc_engine_{name}", about, labels=labels)
            for model, replica, told in each:
                if field in told:
                    family.add_metric([model, replica][: len(labels)], told[field])
            yield family


async def _stats_of(client: EngineClient) -> EngineStats:
    try:
        told = await client.counters()
    except MlccError:
        return {}
    together = told["engine"] or {}
    if each := told.get("replicas"):
        return {**each, "": {"retried": together["retried"]}}
    return {"": together}


_METHODS = ("GET", "HEAD", "POST", "OPTIONS", "DELETE", "PUT", "PATCH")
