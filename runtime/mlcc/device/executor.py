"""The Executor port: what the engine's drivers ask of a device, whichever it is.

Implemented by `native` (TVM library), `reference` (numpy) and `toy` (exact hash of the prefix).
"""

from __future__ import annotations

from typing import Protocol

from mlcc.engine.batch import Batch, Capacity, Result


class Executor(Protocol):
    """Runs batches in order. Tickets are collected in the order they were submitted."""

    capacity: Capacity
    depth: int
    """Steps worth keeping in flight: 1 where `submit` computes, else 2."""

    def submit(self, batch: Batch) -> int:
        """Start a batch; returns a ticket. May be called again before `collect`."""
        ...

    def collect(self, ticket: int) -> Result:
        """Wait for a submitted batch. Raises DeviceError if the device failed."""
        ...

    def close(self) -> None:
        """Give the device's memory back. Idempotent."""
        ...
