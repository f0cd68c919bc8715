"""The Executor port: what the engine's drivers ask of a device, whichever it is.

Implemented in `mlcc.device`: `native` (TVM library), `reference` (numpy), `toy` (exact hash of the
prefix).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result
from mlcc.engine.lora import AdapterMatrix


class Executor(Protocol):
    """Runs batches in the order of `submit`, each once the one before it is done: a page that a
    batch writes may be another sequence's in the next. Tickets are collected in the same order."""

    capacity: Capacity
    depth: int
    """Steps worth keeping in flight: 1 where `submit` computes, else 2."""

    def step_buffer(self) -> memoryview | None:
        """Memory for the next batch, `Engine.plan` takes it; None = the batch brings its own."""
        ...

    def adjustments_buffer(self) -> memoryview | None:
        """The same for the adjustments of the next batch, `AdjustmentWriter` takes it."""
        ...

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """Start a batch; returns a ticket. May be called again before `collect`.

        adjustments: what is done to logits before sampling. Raises UnsupportedError if the device
        cannot do it.
        """
        ...

    def collect(self, ticket: int) -> Result:
        """Wait for a submitted batch. Raises DeviceError if the device failed."""
        ...

    def write_adapter(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a slot for adapters, all of it, behind the steps that were submitted.

        Raises UnsupportedError if the device has no room for adapters.
        """
        ...

    page_bytes: tuple[int, ...]
    """What `read_pages` gives for one page, or slot, of each cache group."""

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        """What pages hold, as `write_pages` of an executor of the same library takes it: the same
        dtypes and order of tensors, for which `mlcc.artifact.kv_format.kv_identity` stands.

        Between steps: all that were submitted are collected. Raises UnsupportedError if the device
        cannot.
        """
        ...

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Put it into others, before the next step; `page_bytes` for each. The same is raised."""
        ...

    def close(self) -> None:
        """Give the device's memory back. Idempotent."""
        ...


@runtime_checkable
class Encodes(Protocol):
    """The executor of an encoder: its library gives a row of numbers for each row of a batch."""

    def step_buffer(self) -> memoryview | None:
        """Memory for the next batch; None = it brings its own."""
        ...

    def vectors(self, batch: Batch, width: int) -> Any:
        """Run a batch at once; f32[r, width], which has `tobytes`. Raises DeviceError."""
        ...
