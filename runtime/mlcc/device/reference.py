"""The reference executor: numpy evaluates the graph of a model as it was before lowering.

The oracle of every target: it shares no kernel, no layout and no pass with them. Slow on purpose.
Needs numpy alone, no tvm.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.device import reference_ops as ops
from mlcc.engine.batch import Batch, Capacity, Result

Array = npt.NDArray[Any]


class ReferenceExecutor:
    """Evaluates `graph` (the JSON of target `reference`) on the given weights.

    `dtype` is what everything is computed in: float32, or float64 as a stricter oracle.
    """

    def __init__(
        self,
        graph: Mapping[str, Any],
        weights: Mapping[str, Array],
        capacity: Capacity,
        kv_shape: tuple[int, int, int, int],
        layers: int,
        dtype: str = "float32",
    ) -> None:
        self.capacity, self.graph, self.dtype = capacity, graph, np.dtype(dtype)
        self.depth = 1
        self.weights = {name: self._cast(array) for name, array in weights.items()}
        self.constants = {n: self._cast(np.array(v)) for n, v in graph["constants"].items()}
        # Poisoned, so that a read of what nothing wrote shows.
        shape = (capacity.num_pages, *kv_shape)
        self.pages = [np.full(shape, np.nan, self.dtype) for _ in range(layers)]
        self.last_sampled = np.zeros(1, np.int32)
        self._results: dict[int, Result] = {}
        self._next_ticket = 0

    def _cast(self, array: Array) -> Array:
        return array.astype(self.dtype)

    def submit(self, batch: Batch) -> int:
        """Run a batch at once."""
        logits = self.logits(batch).astype(np.float32)
        columns = (batch.temperature, batch.top_k, batch.top_p, batch.min_p, batch.uniforms)
        tokens, logprobs = ops.sample(logits, *(_array(c) for c in columns))
        self.last_sampled = tokens
        ticket = self._next_ticket
        self._next_ticket += 1
        self._results[ticket] = Result(tokens.tolist(), logprobs.tolist())
        return ticket

    def collect(self, ticket: int) -> Result:
        """The result of a ticket. Raises KeyError if it was collected before."""
        return self._results.pop(ticket)

    def close(self) -> None:
        """Free the pages and weights."""
        self.pages, self.weights = [], {}

    def logits(self, batch: Batch) -> Array:
        """Run a batch and return its logits [r, vocab]."""
        values: dict[str, Any] = {
            "token_ids": ops.resolve_tokens(_array(batch.token_ids), self.last_sampled),
            "positions": _array(batch.positions),
            "logit_rows": _array(batch.logit_rows),
            **self.constants,
        }
        for node in self.graph["nodes"]:
            inputs = [self._value(values, name) for name in node["in"]]
            if node["op"] == "mlcc.attention":
                result = self._attention(batch, *inputs, *node["attributes"])
            else:
                result = ops.OPERATORS[node["op"]](*inputs, *node["attributes"])
            values[node["out"]] = result
        logits: Array = values[self.graph["output"]]
        return logits

    def _value(self, values: dict[str, Any], name: str) -> Any:
        return self.weights[name[7:]] if name.startswith("weight:") else values[name]

    def _attention(
        self, batch: Batch, q: Array, k: Array, v: Array, layer: int, text: str
    ) -> Array:
        """`text`: the compiler's `AttentionShape`, as JSON."""
        shape = json.loads(text)
        pages = self.pages[layer]
        ops.append_kv(k, v, _array(batch.token_slots), pages)
        out: Array = ops.paged_attention(
            q,
            pages,
            _array(batch.qo_indptr),
            _array(batch.page_indptr),
            _array(batch.page_indices),
            _array(batch.last_page_len),
            shape["scale"],
            shape["window"],
            shape["softcap"],
        )
        return out


def _array(values: Any) -> Array:
    return np.frombuffer(values, dtype=values.typecode)
