"""Sensitivity of each matrix: the KL divergence of the model's next-token distributions when that
matrix alone is rounded.

One forward measures all of them. A few rows of a text go through the model unchanged, and one copy
of them for each matrix, whose products in that copy use rounded weights; at the end each copy's
distribution is compared with the original's. A copy starts at its matrix's layer, from the
original's values. So a weight is read once, and how an error propagates (a norm that shrinks it, a
layer that depends on one channel) needs no model of its own. The use of the measurement is
`bit_allocation.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.calibration.calibrate import CHUNK_TOKENS, CalibratedTensors, MatrixRounder
from mlcc_compiler.calibration.forward import Forward, ForwardModel, forward_model, layer_by_layer
from mlcc_compiler.calibration.weights import CachedWeights, matmul, single_threaded_blas
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization import Scheme, dequantize

Floats = npt.NDArray[np.float32]

ROW_TOKENS = 128
SKIPPED_TOKENS = 32
"""First tokens of a row that are not compared: too little context to predict the next token."""
HELD_OUT_EVERY = 8
"""At most one row of this many is held out for measuring."""
MAX_COPY_TOKENS = 3 << 14
"""Tokens of all copies together, unless one row each is more."""
TOP_TOKENS = 16
"""Most likely tokens of the original at each position; distributions are compared over the union of
these over all positions.
"""


def measure_divergences(
    plan: Plan,
    rows: Sequence[Sequence[int]],
    schemes: Mapping[str, Scheme],
    found: CalibratedTensors,
    progress: Callable[[int, int], None],
) -> dict[str, float]:
    """Model tensor -> KL divergence (nats a token) when it alone is rounded to its scheme, for
    those of `schemes` that products of the text's rows reach. rows: most are used to round on, the
    held-out ones to measure. `found` receives the matrices as they were rounded.

    Raises CheckpointError for damaged weights.
    """
    text, some = _held_out(rows, len(schemes))
    model, weights = forward_model(plan, max(map(len, rows))), CachedWeights(plan)
    stage = MatrixRounder(plan, found, schemes, weights).stage(model, text)
    copies = _Copies(plan, found, model, weights, some, list(schemes))
    with single_threaded_blas():
        layer_by_layer(model.layers, [stage, (copies.steps, weights.clear)], progress)
    return copies.divergences()


def _held_out(
    rows: Sequence[Sequence[int]], matrices: int
) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    """(rows to round on, beginnings of held-out rows, evenly spread): error on the calibration text
    itself is lower than elsewhere. For a text of one row, both are that row."""
    count = max(1, MAX_COPY_TOKENS // (ROW_TOKENS * (matrices + 1)))
    count = min(count, -(-len(rows) // HELD_OUT_EVERY))
    places = {(2 * i + 1) * len(rows) // (2 * count) for i in range(count)}
    others = [row for i, row in enumerate(rows) if i not in places]
    return others or list(rows), [rows[i][:ROW_TOKENS] for i in sorted(places)]


class _Copies:
    """Rows of a text on their way through a model: once unchanged, and a copy for each matrix."""

    def __init__(
        self,
        plan: Plan,
        found: CalibratedTensors,
        model: ForwardModel,
        weights: CachedWeights,
        rows: Sequence[Sequence[int]],
        names: Sequence[str],
    ) -> None:
        self._sources, self._found, self._weights = plan.sources, found, weights
        self._tokens_per_copy = sum(map(len, rows))
        self._compared = np.concatenate([np.arange(len(row)) >= SKIPPED_TOKENS for row in rows])
        if not self._compared.any():
            self._compared[:] = True
        nodes = model.graph["nodes"]
        self._head = [n["in"][1][7:] for n in nodes if n["op"] == "mlcc.linear"][-1]
        self._logits = nodes[-1]["out"]
        self._top_ids = np.empty(0, np.int32)
        """Ids that are compared, once the original has computed them."""
        self._rounded = set[str]()
        together = max(1, CHUNK_TOKENS // self._tokens_per_copy)
        order = _order(nodes)
        names = sorted((name for name in names if name in order), key=order.__getitem__)
        groups = (names[i : i + together] for i in range(0, len(names), together))
        self._names = [[""], *groups]  # the first as it is
        self._forwards = [self._forward(model, rows, some) for some in self._names]
        self._layer_start: tuple[dict[str, Any], dict[int, Any]] = {}, {}
        """Values and shared keys and values of the original at the start of the current layer."""
        starts = list(accumulate(model.layers, initial=0))
        first, *others = zip(self._forwards, self._names, strict=True)
        self.steps = [self._first_steps(first[0], starts)]
        for forward, some in others:
            since = max(start for start in starts if start <= order[some[0]])
            self.steps.append(self._resumed_steps(forward, since))

    def _first_steps(self, forward: Forward, starts: Sequence[int]) -> Iterator[int]:
        """Steps of the original; its state at the start of each layer is kept for the copies."""
        done = 0
        steps = forward.steps(until="")
        while True:
            if done in starts:
                self._layer_start = dict(forward.values), dict(forward.shared_kv)
            try:
                done = next(steps)
            except StopIteration:
                return
            yield done

    def _resumed_steps(self, forward: Forward, since: int) -> Iterator[int]:
        """Steps of copies of the original, from the start of a layer on."""
        for done in forward.steps(until="", since=since):
            yield done
            if done == since:
                forward.resume_from(*self._layer_start)

    def _forward(
        self, model: ForwardModel, rows: Sequence[Sequence[int]], names: Sequence[str]
    ) -> Forward:
        """A forward over one copy for each of `names`."""
        total = len(names) * self._tokens_per_copy

        def linear(name: str, source: str, x: Floats) -> Floats:
            if name == self._head:
                return self._top_logits(x)
            y = matmul(x, self._weights.read(name))
            if name in names and len(x) == total:
                rounded = dequantize(self._found.quantized(self._sources[name]))
                own = self._copy_rows(names.index(name))
                y[own] = x[own] @ rounded.T
                self._rounded.add(name)
            return y

        forward = model.forward([*rows] * len(names), self._weights, linear)
        forward.values["logit_rows"] = np.arange(total, dtype=np.int32)
        return forward

    def divergences(self) -> dict[str, float]:
        """Tensor -> divergence of its copy from the original."""
        first = _log_softmax(self._forwards[0].values[self._logits])
        probabilities = np.exp(first) * self._compared[:, None] / self._compared.sum()
        found = {}
        for forward, names in zip(self._forwards[1:], self._names[1:], strict=True):
            for i, name in enumerate(names):
                if name in self._rounded:
                    other = _log_softmax(forward.values[self._logits][self._copy_rows(i)])
                    found[name] = float((probabilities * (first - other)).sum())
        return found

    def _top_logits(self, x: Floats) -> Floats:
        """Logits [n, some tokens], of the tokens that the original (the first caller) finds most
        likely."""
        if not len(self._top_ids):
            every = self._weights.matmul(self._head, x)
            top = np.argpartition(every, -min(TOP_TOKENS, every.shape[1]), axis=1)[:, -TOP_TOKENS:]
            self._top_ids = np.unique(top).astype(np.int32)
        return matmul(x, self._weights.rows(self._head, self._top_ids))

    def _copy_rows(self, copy: int) -> slice:
        return slice(copy * self._tokens_per_copy, (copy + 1) * self._tokens_per_copy)


def _order(nodes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Weight -> index of the first node that multiplies with it."""
    linear = [(n["in"][1][7:], i) for i, n in enumerate(nodes) if n["op"] == "mlcc.linear"]
    return dict(reversed(linear))


def _log_softmax(logits: Floats) -> Floats:
    shifted = (logits - logits.max(axis=-1, keepdims=True)).astype(np.float64)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
