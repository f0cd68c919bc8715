"""How many replicas there should be: by the requests that there are, and by the pages that running
ones hold. Ray Serve keeps the bounds and waits before it acts. Imports no ray."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, Protocol

PAGES_USED = 0.8
"""Of all pages, held by running requests: beyond this they step back for each other."""

Stats = Mapping[str, Mapping[Any, float]]
"""A number's name, and what each replica told of it."""


class Context(Protocol):
    """What of Ray Serve's AutoscalingContext is used."""

    current_num_replicas: int
    total_num_requests: float
    aggregated_metrics: Stats
    config: Any


def replica_policy(context: Context) -> tuple[int, dict[str, Any]]:
    """A policy of Ray Serve's: the number, and no state."""
    metrics = context.aggregated_metrics or {}
    pages, free = (sum((metrics.get(name) or {}).values()) for name in ("pages", "pages_free"))
    used = 1 - free / pages if pages else 0.0
    ongoing = context.config.get_target_ongoing_requests()
    return desired(context.current_num_replicas, context.total_num_requests, used, ongoing), {}


def desired(current: int, requests: float, used: float, ongoing: float) -> int:
    """Replicas for so many requests, of which each takes `ongoing`, and a share of used pages.

    None are for nobody: with none there is nothing that holds pages."""
    by_requests = requests / ongoing
    by_pages = current * used / PAGES_USED
    return ceil(round(max(by_requests, by_pages), 6))
