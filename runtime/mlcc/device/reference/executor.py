"""The reference executor: numpy evaluates the graph of a model as it was before lowering.

The oracle of every target: it shares no kernel, no layout and no pass with them. Slow on purpose.
Needs numpy alone, no tvm.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.artifact.schema import AdaptersInfo, CacheInfo, EmbeddingsInfo
from mlcc.device.check_batch import (
    check_adjustments,
    check_embeddings,
    check_pages,
    require,
)
from mlcc.device.reference import (
    altup,
    attention,
    conformer,
    embeddings,
    mla,
    moe,
    ops,
    pooling,
    ssm,
)
from mlcc.device.reference.caches import (
    CachedOperator,
    EmbeddingsOperator,
    SourceOperator,
    StepOperator,
    layer_caches,
)
from mlcc.device.reference.likelihood import log_likelihood
from mlcc.device.reference.logits import adjust, top_logprobs
from mlcc.device.reference.lora import ReferenceAdapters
from mlcc.device.reference.sampling import SAMPLED, sample
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.adjustments import Adjustments
from mlcc.engine.batch.batch import Batch, Capacity, Result, pairs_of
from mlcc.engine.batch.executor import no_alignment
from mlcc.engine.batch.tables import MOST_TOP_LOGPROBS
from mlcc.engine.lora import AdapterMatrix, no_adapters

Array = npt.NDArray[Any]

Twin = Callable[..., Any] | CachedOperator | EmbeddingsOperator | SourceOperator | StepOperator
OPERATORS: dict[str, Twin] = {
    **ops.OPERATORS,
    **attention.OPERATORS,
    **moe.OPERATORS,
    **mla.OPERATORS,
    **pooling.OPERATORS,
    **ssm.OPERATORS,
    **altup.OPERATORS,
    **conformer.OPERATORS,
    **embeddings.OPERATORS,
}
"""By their names in the graph."""


class ReferenceExecutor:
    """Evaluates `graph` (the JSON of target `reference`) on the given weights. dtype: of all
    computation, float32 or, as a stricter oracle, float64."""

    def __init__(
        self,
        graph: Mapping[str, Any],
        weights: Mapping[str, Array],
        capacity: Capacity,
        caches: Sequence[CacheInfo],
        dtype: str = "float32",
        adapters: AdaptersInfo | None = None,
        embeddings: EmbeddingsInfo | None = None,
        first_timestamp: int = 0,
    ) -> None:
        self.capacity, self.graph, self.dtype = capacity, graph, np.dtype(dtype)
        self.depth, self._first_timestamp = 1, first_timestamp
        self.weights = {name: self._cast(array) for name, array in weights.items()}
        graphs = [graph, *(graph[name] for name in ("mtp", "align") if name in graph)]
        constants = [item for each in graphs for item in each["constants"].items()]
        self.constants = {n: self._cast(np.array(v)) for n, v in constants}
        self.caches = layer_caches(caches, capacity.pools, self.dtype)
        self._adapters = None if adapters is None else ReferenceAdapters(adapters, self.dtype)
        rows = (embeddings.rows, embeddings.width) if embeddings else (0, 0)
        self.embeddings: Array = np.full(rows, np.nan, self.dtype)
        self._infos = tuple(caches)
        self.page_bytes = tuple(cache.bytes_per_page for cache in caches)
        self.last_sampled = np.zeros(1, np.int32)
        self._results: dict[int, Result] = {}
        self._next_ticket = 0

    def _cast(self, array: Array) -> Array:
        return array.astype(self.dtype)

    def step_buffer(self) -> None:
        """None: batches bring their own memory."""

    def adjustments_buffer(self) -> None:
        """None: adjustments bring their own memory."""

    def write_adapter(self, slot: int, matrices: Sequence[AdapterMatrix]) -> None:
        """Fill a LoRA slot. Raises UnsupportedError if there is none."""
        if self._adapters is None:
            raise no_adapters()
        self._adapters.write(slot, matrices)

    def submit(self, batch: Batch, adjustments: Adjustments | None = None) -> int:
        """Run a batch at once. Raises BadBatchError for adjustments of another batch."""
        if adjustments is not None:
            check_adjustments(adjustments, batch, self.capacity, len(self.last_sampled))
        logits = self.logits(batch).astype(np.float32)
        step = StepView(batch)
        if adjustments is not None:
            adjust(logits, adjustments, self.last_sampled, self._first_timestamp)
        top = None
        if batch.top_logprobs:
            found = top_logprobs(logits, step.rows("top_logprobs"), MOST_TOP_LOGPROBS)
            top = pairs_of(*(array.ravel().tolist() for array in found))
        tokens, logprobs = sample(logits, *map(step.rows, SAMPLED), given=step.rows("given"))
        self.last_sampled = tokens
        ticket = self._next_ticket
        self._next_ticket += 1
        self._results[ticket] = Result(tokens.tolist(), logprobs.tolist(), top)
        return ticket

    def collect(self, ticket: int) -> Result:
        """The result of a ticket. Raises KeyError if it was collected before."""
        return self._results.pop(ticket)

    def close(self) -> None:
        """Free the pages and weights."""
        self.caches, self.weights = {}, {}

    def read_pages(self, group: int, ids: Sequence[int]) -> bytes:
        """Contents of pages, in the manifest's dtypes; lossless if the executor computes in
        float32."""
        self._check_pages(group, ids)
        with np.errstate(invalid="ignore"):  # where nothing was written yet
            parts = [tensor[list(ids)].astype(kind) for tensor, kind in self._of_group(group)]
        return b"".join(part.tobytes() for part in parts)

    def write_pages(self, group: int, ids: Sequence[int], data: bytes) -> None:
        """Write contents to pages."""
        self._check_pages(group, ids, len(data))
        at = 0
        for tensor, kind in self._of_group(group):
            shape = (len(ids), *tensor.shape[1:])
            count = int(np.prod(shape))
            tensor[list(ids)] = np.frombuffer(data, kind, count, at).reshape(shape)
            at += count * np.dtype(kind).itemsize

    def write_embeddings(self, slots: Sequence[int], rows: bytes) -> None:
        """Write rows that tokens name by ids from the vocabulary's end on."""
        width = self.embeddings.shape[1]
        require(not self._results, "embeddings are written while steps are not collected")
        check_embeddings(self.capacity, slots, width, len(rows))
        self.embeddings[list(slots)] = np.frombuffer(rows, np.float32).reshape(-1, width)

    def _of_group(self, group: int) -> Iterator[tuple[Array, str]]:
        """(tensor, the manifest's dtype) of each tensor of a group."""
        info = self._infos[group]
        tensors = (t for layer in info.layers for t in self.caches[layer].tensors.values())
        return zip(tensors, (spec.dtype for spec in info.tensors), strict=True)

    def _check_pages(self, group: int, ids: Sequence[int], size: int | None = None) -> None:
        require(not self._results, "pages are moved while steps are not collected")
        check_pages(self.capacity, group, ids, self.page_bytes, size)

    def logits(self, batch: Batch) -> Array:
        """Run a batch and return its logits [r, vocab]."""
        return self._run(batch, self.graph["mtp"] if batch.mtp else self.graph)

    def alignment(self, batch: Batch, width: int) -> Array:
        """Run a batch for the weights of the alignment heads, f32[r, width]. Raises
        UnsupportedError if the graph has none."""
        if (graph := self.graph.get("align")) is None:
            raise no_alignment()
        return np.ascontiguousarray(self._run(batch, graph)[:, :width], np.float32)

    def _run(self, batch: Batch, graph: Mapping[str, Any]) -> Array:
        """The output of a graph for a batch."""
        step = StepView(batch)
        for g, source, to in zip(
            *map(step.copies, ("group", "source", "destination")), strict=True
        ):
            for cache in self.caches.values():
                for tensor in cache.tensors.values() if cache.group == g else ():
                    tensor[to] = tensor[source]
        ids, positions, rows, *_ = ops.read_step(step, self.last_sampled)
        values: dict[str, Any] = {
            "token_ids": ids,
            "positions": positions,
            "logit_rows": rows,
            **self.constants,
        }
        for node in graph["nodes"]:
            inputs = [self._value(values, name) for name in node["in"]]
            operator = OPERATORS[node["op"]]
            if isinstance(operator, CachedOperator):
                layer, record = node["attributes"]
                result = operator.twin(step, self.caches[layer], *inputs, **json.loads(record))
            elif isinstance(operator, StepOperator):
                result = operator.twin(step, *inputs, *node["attributes"])
            elif isinstance(operator, EmbeddingsOperator):
                result = operator.twin(self.embeddings, *inputs, *node["attributes"])
            elif isinstance(operator, SourceOperator):
                result = operator.twin(step, self.embeddings, *inputs, *node["attributes"])
            else:
                result = operator(*inputs, *node["attributes"])
            if self._adapters is not None and batch.adapted and node["op"] == "mlcc.linear":
                result = self._adapters.add(step, node["in"][1], inputs[0], result)
            values[node["out"]] = result
        found: Array = values[graph["output"]]
        return found

    def vectors(self, batch: Batch, width: int) -> Array:
        """Run a batch of an encoder; returns f32[r, width]."""
        return np.ascontiguousarray(self.logits(batch)[:, :width], np.float32)

    def log_likelihood(self, batch: Batch, targets: Sequence[int]) -> float:
        """Run a batch and sum, over its rows, the natural log of each target's probability."""
        return log_likelihood(self.logits(batch), targets)

    def _value(self, values: dict[str, Any], name: str) -> Any:
        return self.weights[name[7:]] if name.startswith("weight:") else values[name]
