"""The toy executor as steps of packed memory: what stands behind the JavaScript of tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from toy_model import CAPACITY

from mlcc.device.toy import ToyExecutor
from mlcc.engine.batch import Batch, Capacity, Result


class ToySteps:
    """Steps of the exact toy, in order."""

    def __init__(self, capacity: Capacity = CAPACITY) -> None:
        self._toy = ToyExecutor(capacity)

    def run(self, data: bytes, sizes: Sequence[int]) -> Result:
        """One step that `JsExecutor.pack` packed, at once."""
        layout = self._toy.capacity.layout
        whole = bytearray(4 * layout.words)
        whole[: len(data)] = data
        batch = Batch(layout, memoryview(whole).cast("i"))
        assert tuple(sizes) == batch.sizes
        return self._toy.collect(self._toy.submit(batch))

    def step(self, data: Any, sizes: Any) -> str:
        """`run` for JavaScript: typed arrays in, JSON out."""
        result = self.run(data.to_bytes(), list(sizes.to_py()))
        return json.dumps({"tokens": list(result.tokens), "logprobs": list(result.logprobs)})
