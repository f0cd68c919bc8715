"""Autoscaling policy: the number of replicas, from the number of requests and the KV pages that
running requests use.

Ray Serve applies the bounds and the delays. Does not import ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Protocol

PAGES_USED = 0.8
"""Target share of pages in use by running requests; above it, requests preempt each other."""

Stats = Mapping[str, Mapping[Any, float]]
"""Metric name -> replica -> value."""


class Context(Protocol):
    """The fields of Ray Serve's AutoscalingContext that the policy reads."""

    current_num_replicas: int
    total_num_requests: float
    aggregated_metrics: Stats
    config: Any


def replica_policy(context: Context) -> tuple[int, dict[str, Any]]:
    """Ray Serve policy function: returns the number of replicas, and no state."""
    metrics = context.aggregated_metrics or {}
    pages, free = (sum((metrics.get(name) or {}).values()) for name in ("pages", "pages_free"))
    used = 1 - free / pages if pages else 0.0
    ongoing = context.config.get_target_ongoing_requests()
    return desired(context.current_num_replicas, context.total_num_requests, used, ongoing), {}


def desired(current: int, requests: float, used: float, ongoing: float) -> int:
    """Return the replicas needed for `requests` requests, at `ongoing` requests per replica and a
    share `used` of all pages.

    Zero requests need zero replicas.
    """
    by_requests = requests / ongoing
    by_pages = current * used / PAGES_USED
    return ceil(round(max(by_requests, by_pages), 6))
