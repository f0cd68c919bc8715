"""The toy executor over steps of packed memory, for tests of the JavaScript side."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mlcc.device.toy.executor import ToyExecutor
from mlcc.embedded.executor import JsExecutor
from mlcc.engine.batch.adjust_tables import AdjustLayout
from mlcc.engine.batch.adjustments import Adjustments, AdjustmentWriter, Penalties, mask_of
from mlcc.engine.batch.batch import Batch, Capacity, Result
from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS
from mlcc.engine.lora import AdapterMatrix
from mlcc.engine.scheduler.manual_steps import ManualSteps
from tests.helpers.toy.toy_model import CAPACITY


class ToySteps:
    """Steps of the exact toy, in order."""

    def __init__(self, capacity: Capacity = CAPACITY) -> None:
        self._toy = ToyExecutor(capacity)

    def run(self, data: bytes, sizes: Sequence[int], adjustments: bytes | None = None) -> Result:
        """One step that `JsExecutor.pack` packed, at once."""
        capacity = self._toy.capacity
        batch = Batch(capacity.layout, _words(data, capacity.layout.words))
        assert tuple(sizes) == batch.sizes
        adjusted = None
        if adjustments is not None:
            layout = AdjustLayout.of(capacity.layout, capacity.vocab_size)
            adjusted = Adjustments(layout, _words(adjustments, layout.words))
        return self._toy.collect(self._toy.submit(batch, adjusted))

    def write_adapter(self, slot: int, matrices: str, data: bytes) -> None:
        """Fill a slot with the matrices that `JsExecutor.write_adapter` describes in JSON and
        bytes."""
        found, begin = [], 0
        for record in json.loads(matrices):
            size = record["rows"] * record["columns"] * (4 if record["dtype"] == "float32" else 2)
            found.append(AdapterMatrix(**record, data=bytes(data[begin : begin + size])))
            begin += size
        assert begin == len(data)
        self._toy.write_adapter(slot, found)

    def write_embeddings(self, slots: Sequence[int], rows: bytes) -> None:
        """Rows that stand for images."""
        self._toy.write_embeddings(slots, rows)

    def step(self, data: Any, sizes: Any, adjustments: Any) -> str:
        """`run` for JavaScript: typed arrays in, JSON out."""
        more = None if adjustments is None else adjustments.to_bytes()
        return json.dumps(result_json(self.run(data.to_bytes(), list(sizes.to_py()), more)))


def result_json(result: Result) -> dict[str, Any]:
    """A result as `web/src/device/readback.ts` has it: `top` only where it was wanted."""
    plain: dict[str, Any] = {"tokens": list(result.tokens), "logprobs": list(result.logprobs)}
    if result.top_logprobs is not None:
        rows = [
            [*row, *[(-1, 0.0)] * (MOST_TOP_LOGPROBS - len(row))] for row in result.top_logprobs
        ]
        tokens, logprobs = zip(*(pair for row in rows for pair in row), strict=True)
        plain["top"] = {"tokens": list(tokens), "logprobs": list(logprobs)}
    return plain


def adjusted_steps(capacity: Capacity = CAPACITY) -> list[tuple[Batch, Adjustments | None]]:
    """A plain step, then one of tokens in flight: adjusted, with top logprobs."""
    steps = ManualSteps(capacity, 3)
    writer = AdjustmentWriter(AdjustLayout.of(capacity.layout, capacity.vocab_size))
    mask = writer.mask(mask_of([2, 3, 70], capacity.vocab_size))
    writer.row(0, Penalties(1.5, 40.0, 0.25), history={1: 0}, in_flight=0)
    writer.row(2, bias={2: 5.0, 3: -2.5}, mask=mask)
    plain = steps.step({0: [1, 2], 1: [3], 2: [4, 5]})
    second = steps.step({s: [-1 - s] for s in range(3)}, top_logprobs=4)
    return [(plain, None), (second, writer.finish())]


async def answers_of(js: Any) -> str:
    """The results of the adjusted steps through a page's executor, in JSON."""
    executor = JsExecutor(js)
    packed = [executor.pack(*step) for step in adjusted_steps()]
    tickets = [executor.submit(step) for step in packed]
    return json.dumps([(await executor.collect(ticket))._asdict() for ticket in tickets])


def _words(data: bytes, count: int) -> memoryview:
    """A buffer of so many words that begins with the data."""
    whole = bytearray(4 * count)
    whole[: len(data)] = data
    return memoryview(whole).cast("i")
