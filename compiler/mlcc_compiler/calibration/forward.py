"""A forward pass before compilation: evaluates the traced graph node by node with numpy.

All rows of the text go through a node together, and a value is dropped after its last use, so
memory holds one layer's arrays and one weight, however deep the model is. The operators are those
of the reference executor, except attention: rows are whole sequences, whose scores are one product.
What happens at a matrix is the caller's `linear`; reading weights is `weights.py`.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise, takewhile
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mlcc.device.reference import ops
from mlcc.device.reference.caches import (
    CachedOperator,
    EmbeddingsOperator,
    LayerCache,
    SourceOperator,
    StepOperator,
    layer_caches,
)
from mlcc.device.reference.executor import OPERATORS
from mlcc.device.reference.step_view import StepView
from mlcc.engine.batch.batch import Batch, Capacity
from mlcc.engine.scheduler.manual_steps import ManualSteps
from mlcc.errors import UnsupportedError
from mlcc_compiler.ir.caches import Caches
from mlcc_compiler.ir.graph_json import graph_to_json
from mlcc_compiler.models.registry import build_model
from mlcc_compiler.passes.cache_groups import caches_of
from mlcc_compiler.pipeline import trace
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization.codec import cores

Array = Any
"""A numpy array; numpy loses its own type in every arithmetic expression."""

PAGE_SIZE = 16
_LAYER = re.compile(r"\blayers\.(\d+)\.")
UNTIL_HEAD = "logit_rows"
"""The first value that the head reads; rounding the head needs no activation statistics."""
Linear = Callable[[str, str, Array], Array]
"""(name of the weight [N, K], name of its input in the graph, input [n, K]) -> [n, N]"""


class WeightSource(Protocol):
    """Weights by name, f32; called once for each use."""

    def read(self, name: str) -> npt.NDArray[np.float32]:
        """The whole tensor."""

    def rows(self, name: str, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Rows of a table."""


class Forward:
    """One pass of `graph` (`graph_json.graph_to_json`) over rows of token ids, all in one step.

    linear: computes the products of matrices; it may substitute another weight.
    """

    def __init__(
        self,
        graph: Mapping[str, Any],
        caches: Caches,
        vocab_size: int,
        rows: Sequence[Sequence[int]],
        weights: WeightSource,
        linear: Linear,
    ) -> None:
        self.graph, self.weights, self.linear = graph, weights, linear
        batch, pools = _one_step(caches, vocab_size, rows)
        self.step = StepView(batch)
        self.caches: dict[int, LayerCache] = layer_caches(
            caches.infos(pools), pools, np.float32, _stateful_layers(graph)
        )
        self.shared_kv: dict[int, tuple[Array, ...]] = dict.fromkeys(_shared_layers(graph), ())
        """Layer -> its keys and values, for layers whose cache other layers' queries read."""
        ids, positions, wanted, *_ = ops.read_step(self.step, np.zeros(1, np.int32))
        self.values: dict[str, Any] = {
            "token_ids": ids,
            "positions": positions,
            "logit_rows": wanted,
            **{name: np.array(v, np.float32) for name, v in graph["constants"].items()},
        }

    def run(self, progress: Callable[[int, int], None], until: str) -> None:
        """Run `steps` to the end."""
        total = len(self.graph["nodes"])
        for done in self.steps(until):
            progress(done, total)

    def steps(self, until: str, since: int = 0) -> Iterator[int]:
        """Evaluate up to the node that first reads value or weight `until`, which is excluded;
        yields the number of finished nodes. Nodes before `since` are skipped: the values that later
        nodes read of them must be set meanwhile (`resume_from`)."""
        nodes = self.graph["nodes"]
        last_use = {name: i for i, node in enumerate(nodes) for name in node["in"]}
        for i, node in enumerate(self._before(until)):
            if i < since:
                yield i + 1
                continue
            self.values[node["out"]] = self._evaluate(node)
            for name in {*node["in"], node["out"]}:
                if last_use.get(name, len(nodes)) <= i:
                    self.values.pop(name, None)
            yield i + 1

    def resume_from(
        self, values: Mapping[str, Any], shared_kv: Mapping[int, tuple[Array, ...]]
    ) -> None:
        """Continue from the state of another forward, of whose rows this one's are repeated
        copies."""
        of_rows, own = self._per_token_values(), len(self.values["positions"])

        def copied(value: Any) -> Any:
            return np.concatenate([value] * (own // len(value)))

        for name, value in values.items():
            if name not in self.values:
                self.values[name] = copied(value) if name in of_rows else value
        for layer, both in shared_kv.items():
            self.shared_kv[layer] = tuple(map(copied, both))

    def _per_token_values(self) -> set[str]:
        """The values with one row per token."""
        found = {"token_ids", "positions"}
        for node in self.graph["nodes"]:
            reads = isinstance(OPERATORS.get(node["op"]), StepOperator | CachedOperator)
            if reads or not found.isdisjoint(node["in"]):
                found.add(node["out"])
        return found

    def linears(self, until: str) -> set[str]:
        """The weights whose products `linear` will compute."""
        nodes = self._before(until)
        return {node["in"][1][7:] for node in nodes if node["op"] == "mlcc.linear"}

    def _before(self, until: str) -> list[Mapping[str, Any]]:
        return list(takewhile(lambda node: until not in node["in"], self.graph["nodes"]))

    def _evaluate(self, node: Mapping[str, Any]) -> Any:
        name = node["op"]
        if name == "mlcc.linear":
            source, weight, *bias = node["in"]
            x = self._value(source)
            y = self.linear(weight[7:], source, x)
            return y + self._value(bias[0]) if bias else y
        if name == "mlcc.embedding":
            ids, table = node["in"]
            return self.weights.rows(table[7:], self._value(ids))
        inputs = [self._value(each) for each in node["in"]]
        if name == "mlcc.attention":
            return self._attention(inputs, *node["attributes"])
        operator = OPERATORS[name]
        if isinstance(operator, CachedOperator):
            layer, record = node["attributes"]
            return operator.twin(self.step, self.caches[layer], *inputs, **json.loads(record))
        if isinstance(operator, StepOperator):
            return operator.twin(self.step, *inputs, *node["attributes"])
        if isinstance(operator, EmbeddingsOperator):
            return operator.twin(np.zeros((0, 0), np.float32), *inputs, *node["attributes"])
        if isinstance(operator, SourceOperator):
            raise UnsupportedError("a model that hears is not run on a text alone")
        return operator(*inputs, *node["attributes"])

    def _attention(self, inputs: Sequence[Array], layer: int, record: str) -> Array:
        """Each row attends to itself: rows are whole sequences, so nothing is cached except keys
        and values that other layers share."""
        numbers = json.loads(record)
        if numbers["shared"]:
            q, *sinks, k, v = *inputs, *self.shared_kv[layer]
        else:
            q, *sinks, k, v = inputs
        if layer in self.shared_kv:
            self.shared_kv[layer] = k, v
        out = np.empty_like(q)

        def attend(span: tuple[Any, Any]) -> None:
            own = slice(*map(int, span))
            out[own] = _attend(q[own], k[own], v[own], *sinks, **numbers)

        with ThreadPoolExecutor(cores()) as pool:
            list(pool.map(attend, pairwise(self.step.sequences("first_token"))))
        return out

    def _value(self, name: str) -> Any:
        return self.weights.read(name[7:]) if name.startswith("weight:") else self.values[name]


@dataclass(frozen=True)
class ForwardModel:
    """A plan's traced model, ready for forwards."""

    graph: Mapping[str, Any]
    caches: Caches
    vocab_size: int

    def forward(
        self, rows: Sequence[Sequence[int]], weights: WeightSource, linear: Linear
    ) -> Forward:
        """A forward over rows of token ids, not started yet."""
        return Forward(self.graph, self.caches, self.vocab_size, rows, weights, linear)

    @property
    def layers(self) -> list[int]:
        """Number of nodes of each layer, in order. Nodes before the first layer count as part of
        it, nodes after the last layer as part of that."""
        firsts, layer = [0], None
        for i, node in enumerate(self.graph["nodes"]):
            found = _LAYER.search(" ".join(node["in"]))
            if found and found[1] != layer:
                firsts += [i] if layer is not None else []
                layer = found[1]
        return [end - start for start, end in pairwise([*firsts, len(self.graph["nodes"])])]


def forward_model(plan: Plan, longest: int) -> ForwardModel:
    """A plan's model for rows of at most `longest` tokens."""
    context = max(longest, plan.limits.context)
    traced = trace(build_model(plan.checkpoint.config, context).model)
    graph = json.loads(graph_to_json(traced))
    caches = caches_of(traced.module, PAGE_SIZE, "float32")
    return ForwardModel(graph, caches, plan.config.vocab_size)


def make_forward(
    plan: Plan, rows: Sequence[Sequence[int]], weights: WeightSource, linear: Linear
) -> Forward:
    """A forward of a plan's model over rows of token ids, all at once."""
    return forward_model(plan, max(map(len, rows))).forward(rows, weights, linear)


Stage = tuple[Sequence[Iterator[int]], Callable[[], None]]
"""`Forward.steps` of several forwards, and a callback that runs after each layer."""


def layer_by_layer(
    layers: Sequence[int], stages: Sequence[Stage], progress: Callable[[int, int], None]
) -> None:
    """Run forwards of one model in lockstep: each layer for all forwards of the first stage, one
    after the other, then for those of the next. Memory is that of one forward."""
    total = sum(layers)
    for done, count in zip(accumulate(layers), layers, strict=True):
        for forwards, after_layer in stages:
            for steps in forwards:
                deque(islice(steps, count), maxlen=0)
            after_layer()
        progress(done, total)


def _stateful_layers(graph: Mapping[str, Any]) -> set[int]:
    """Layers whose operators keep a state or cache, except plain attention."""
    kept = (n for n in graph["nodes"] if isinstance(OPERATORS.get(n["op"]), CachedOperator))
    return {n["attributes"][0] for n in kept if n["op"] != "mlcc.attention"}


def _shared_layers(graph: Mapping[str, Any]) -> set[int]:
    """Layers whose keys and values other layers read too."""
    calls = (n["attributes"] for n in graph["nodes"] if n["op"] == "mlcc.attention")
    return {layer for layer, record in calls if json.loads(record)["shared"]}


def _attend(
    q: Array,
    k: Array,
    v: Array,
    sink: Array | None = None,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    **sizes: int,
) -> Array:
    """Causal attention of one sequence: q [n, heads, head_dim] on k, v [n, kv_heads, head_dim]."""
    n, heads, _ = q.shape
    place = np.arange(n)
    hidden = place[:, None] < place
    if window is not None:
        hidden |= place[:, None] - place >= window
    out = np.empty_like(q)
    for h in range(heads):
        kv = h // (heads // k.shape[1])
        score = q[:, h] @ k[:, kv].T
        score *= np.float32(scale)
        if softcap is not None:
            score = ops.softcap(score, softcap)
        score[hidden] = -np.inf
        top = score.max(axis=1, keepdims=True)
        if sink is not None:
            top = np.maximum(top, sink[h])
        score -= top
        np.exp(score, out=score)
        total = score.sum(axis=1, keepdims=True)
        if sink is not None:
            total += np.exp(sink[h] - top)
        out[:, h] = score @ v[:, kv] / total
    return out


def _one_step(
    caches: Caches, vocab_size: int, rows: Sequence[Sequence[int]]
) -> tuple[Batch, tuple[int, ...]]:
    """One step that holds all rows, and the pages for them."""
    longest, total = max(map(len, rows)), sum(map(len, rows))
    pools = tuple(len(rows) * max(1, g.most_pages(longest, total)) for g in caches.groups)
    capacity = Capacity.of(
        caches.groups,
        pools,
        vocab_size=vocab_size,
        context=longest,
        max_batch=len(rows),
        max_step_tokens=total,
    )
    return ManualSteps(capacity, len(rows)).step(dict(enumerate(rows))), pools
