"""The page's GPU as an asynchronous executor: submits a Batch as one block of memory, and awaits
its Result.

JavaScript's part is `web/src/device/executor.ts`. Unlike the executors of `mlcc.device`, no call
blocks.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.embedded.bridge import to_python, typed_array
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Result, int32, pairs_of
from mlcc.engine.lora import AdapterMatrix
from mlcc.errors import DeviceError, DeviceLostError, MlccError, OutOfMemoryError

_ERRORS = {kind.__name__: kind for kind in (DeviceError, DeviceLostError, OutOfMemoryError)}


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch for JavaScript: a Uint8Array of its words, an Int32Array of its sizes, and a
    Uint8Array of its adjustments' words, or None."""

    data: Any
    sizes: Any
    adjustments: Any = None


class Ticket:
    """A step in flight. It awaits the promise from the start, so that no rejection is unhandled."""

    def __init__(self, promise: Any) -> None:
        self._waiting: Generator[Any, Any, Any] = promise.__await__()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._waiting


class JsExecutor:
    """Runs batches in order on the page's GPU. Raises DeviceError and its subclasses."""

    def __init__(self, js: Any) -> None:
        self.depth = int(js.depth)
        self._js = js
        self._typed_array = typed_array()

    def pack(self, batch: Batch, adjustments: Adjustments | None = None) -> Packed:
        """Copy the words in use into JavaScript's memory."""
        data, sizes = self._used(batch), self._typed_array(int32(batch.sizes))
        return Packed(data, sizes, None if adjustments is None else self._used(adjustments))

    def _used(self, tables: Batch | Adjustments) -> Any:
        return self._typed_array(tables.words[: tables.used_words].cast("B"))

    def submit(self, packed: Packed) -> Ticket:
        """Queue a step on the GPU. May be called again before `collect`."""
        try:
            return Ticket(self._js.submit(packed.data, packed.sizes, packed.adjustments))
        except Exception as error:
            raise device_error(error) from error

    def write_embeddings(self, slots: Sequence[int], rows: bytes) -> None:
        """Write rows of embeddings, in order with the steps."""
        try:
            self._js.writeEmbeddings(
                self._typed_array(int32(slots)), self._typed_array(memoryview(rows))
            )
        except Exception as error:
            raise device_error(error) from error

    def write_adapter(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a LoRA slot, in order with the steps; JavaScript lays out the values."""
        records = [
            {
                "tensor": m.tensor,
                "row": m.row,
                "column": m.column,
                "rows": m.rows,
                "columns": m.columns,
                "transposed": m.transposed,
                "dtype": m.dtype,
                "scale": m.scale,
            }
            for m in matrices
        ]
        data = self._typed_array(memoryview(b"".join(m.data for m in matrices)))
        try:
            self._js.writeAdapter(slot, json.dumps(records), data)
        except Exception as error:
            raise device_error(error) from error

    async def collect(self, ticket: Ticket) -> Result:
        """Await the sampled tokens. Tickets must be collected in the order of submission."""
        result = await self._result(ticket)
        top = getattr(result, "top", None)
        return Result(*_lists(result), None if top is None else pairs_of(*_lists(top)))

    async def vectors(self, ticket: Ticket) -> Any:
        """Await the result of an encoder step: float32, one row per text; has `tobytes`."""
        return to_python((await self._result(ticket)).vectors)

    async def alignment(self, batch: Batch, width: int) -> bytes:
        """As `AligningExecutor.alignment`, in order with the steps: f32[r, width]."""
        packed = self.pack(batch)
        try:
            found = await self._js.align(packed.data, packed.sizes, width)
        except Exception as error:
            raise device_error(error) from error
        weights: bytes = to_python(found).tobytes()
        return weights

    async def _result(self, ticket: Ticket) -> Any:
        try:
            return await ticket
        except Exception as error:
            raise device_error(error) from error


def _lists(result: Any) -> tuple[list[int], list[float]]:
    return to_python(result.tokens).tolist(), to_python(result.logprobs).tolist()


def device_error(error: Exception) -> MlccError:
    """Convert what JavaScript threw (`js_error`) to a typed error; anything else is reported as a
    bug."""
    thrown = getattr(error, "js_error", None)
    kind = _ERRORS.get(str(getattr(thrown, "name", "")))
    if thrown is None or kind is None:
        return DeviceError(
            f"the GPU's side failed ({' '.join(str(error).split())[:300]}); this is a bug, please "
            "report it with the browser's console",
            code="engine_failed",
        )
    return kind(str(thrown.message), code=str(getattr(thrown, "code", None) or _code(kind)))


def _code(kind: type[MlccError]) -> str:
    return {DeviceLostError: "device_lost", OutOfMemoryError: "out_of_memory"}.get(
        kind, "device_error"
    )
