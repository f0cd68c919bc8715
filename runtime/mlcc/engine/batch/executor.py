"""The executor port: the interface of a device to the engine's drivers.

Implemented in `mlcc.device`: `compiled` and `tvm` (compiled libraries), `reference` (numpy), `toy`
(exact hash of the prefix).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result
from mlcc.engine.lora import AdapterMatrix
from mlcc.errors import UnsupportedError


class Executor(Protocol):
    """Runs batches in the order of `submit`, each after the previous one: a page that a batch
    writes may belong to another sequence in the next. Tickets are collected in the same order."""

    capacity: Capacity
    depth: int
    """Steps worth keeping in flight: 1 where `submit` computes, else 2."""

    def step_buffer(self) -> memoryview | None:
        """Memory for the next batch, for `Engine.plan`; None = the batch brings its own."""
        ...

    def adjustments_buffer(self) -> memoryview | None:
        """Memory for the adjustments of the next batch, for `AdjustmentWriter`; None = they bring
        their own."""
        ...

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """Start a batch; returns a ticket. May be called again before `collect`.

        adjustments: applied to logits before sampling. Raises UnsupportedError if the device has
        none.
        """
        ...

    def collect(self, ticket: int) -> Result:
        """Wait for a submitted batch. Raises DeviceError if the device failed."""
        ...

    def write_adapter(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a LoRA slot, all of it, after the submitted steps.

        Raises UnsupportedError if the device has no slots.
        """
        ...

    page_bytes: tuple[int, ...]
    """Bytes of `read_pages` for one page, or slot, of each cache group."""

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        """Contents of pages, for `write_pages` of an executor of the same library: the same dtypes
        and order of tensors, which `artifact.kv_format.kv_identity` hashes.

        Between steps: all submitted steps are collected. Raises UnsupportedError if the device
        cannot.
        """
        ...

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Write contents to pages, before the next step; `page_bytes` for each. Raises
        UnsupportedError if the device cannot."""
        ...

    def write_embeddings(self, slots: Sequence[int], rows: bytes) -> None:
        """Write rows f32[len(slots), width] that tokens name by ids from the vocabulary's end on.

        Between steps, as `write_pages`. Raises UnsupportedError if the library reads none.
        """
        ...

    def close(self) -> None:
        """Free the device's memory. Idempotent."""
        ...


@runtime_checkable
class EncoderExecutor(Protocol):
    """The executor of an encoder: its library yields a vector for each row of a batch."""

    def step_buffer(self) -> memoryview | None:
        """Memory for the next batch; None = it brings its own."""
        ...

    def vectors(self, batch: Batch, width: int) -> Any:
        """Run a batch at once; f32[r, width], which has `tobytes`. Raises DeviceError."""
        ...


@runtime_checkable
class AligningExecutor(Protocol):
    """The executor of a model that hears, whose library may say which rows of its window each
    token listens to."""

    def alignment(self, batch: Batch, width: int) -> Any:
        """Run a batch at once for the weights of the alignment heads, each over the rows of its
        window; f32[r, width], which has `tobytes`. Raises UnsupportedError, DeviceError."""
        ...


def no_alignment() -> UnsupportedError:
    """The error for a library without alignment heads."""
    return UnsupportedError(
        "the model was compiled without times of words; compile it again: `mlcc compile WHISPER`",
        param="timestamp_granularities",
        code="unsupported_parameter",
    )
