"""The toy executor as steps of packed memory: what stands behind the JavaScript of tests."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from toy_model import CAPACITY

from mlcc.device.toy import ToyExecutor
from mlcc.engine.batch import Batch, Capacity, Result


def unpack(data: bytes, counts: Sequence[int]) -> Batch:
    """The batch that `JsExecutor.pack` packed."""
    batch, start = Batch(), 0
    for item, count in zip(fields(Batch), counts, strict=True):
        code = getattr(batch, item.name).typecode
        setattr(batch, item.name, array(code, data[start : start + 4 * count]))
        start += 4 * count
    assert start == len(data)
    return batch


class ToySteps:
    """Steps of the exact toy, in order."""

    def __init__(self, capacity: Capacity = CAPACITY) -> None:
        self._toy = ToyExecutor(capacity)

    def run(self, data: bytes, counts: Sequence[int]) -> Result:
        """One step, at once."""
        return self._toy.collect(self._toy.submit(unpack(data, counts)))

    def step(self, data: Any, counts: Any) -> str:
        """`run` for JavaScript: typed arrays in, JSON out."""
        result = self.run(data.to_bytes(), list(counts.to_py()))
        return json.dumps({"tokens": list(result.tokens), "logprobs": list(result.logprobs)})
