"""The Executor port: what the engine's drivers ask of a device, whichever it is.

Implemented by `native` (TVM library), `reference` (numpy) and `toy` (exact hash of the prefix).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mlcc.engine.batch import Batch, Result


@dataclass(frozen=True, slots=True)
class Capacity:
    """What an executor can hold; the engine schedules within it."""

    vocab_size: int
    context: int
    """Longest sequence in tokens, prompt and answer together."""
    page_size: int
    """Tokens per page."""
    num_pages: int
    max_batch: int
    """Sequences per step, which is also the most logit rows per step."""
    max_step_tokens: int
    """Tokens per step over all sequences: the prefill chunk."""
    window: int | None = None
    """If every layer slides: tokens a query can see. Pages wholly behind it may be freed."""


class Executor(Protocol):
    """Runs batches in order. Tickets are collected in the order they were submitted."""

    capacity: Capacity

    def submit(self, batch: Batch) -> int:
        """Start a batch; returns a ticket. May be called again before `collect`."""
        ...

    def collect(self, ticket: int) -> Result:
        """Wait for a submitted batch. Raises DeviceError if the device failed."""
        ...

    def close(self) -> None:
        """Give the device's memory back. Idempotent."""
        ...
