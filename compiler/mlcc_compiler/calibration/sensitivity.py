"""What rounding costs a model, matrix by matrix: the divergence of its next tokens when one alone
is rounded.

All in one forward. The same few rows of a text go through the model once as they are, and once more
for each matrix, whose products in that copy are of rounded weights; at the end each copy's
distribution is compared with the first's. A copy begins where its matrix is: before, it is what the
first forward is. So a weight is read once, and what happens to an error on
its way (a norm that makes it small, a layer that hangs on one channel) needs no model of its own.
Not here: what is done about it (`budget.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.calibration.calibrate import PART_TOKENS, Calibrated, Rounding
from mlcc_compiler.calibration.forward import Forward, Runnable, layer_by_layer, runnable
from mlcc_compiler.calibration.weights import LayerWeights, one_core, product
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization import Scheme, dequantize

Floats = npt.NDArray[np.float32]

ROW_TOKENS = 128
BEFORE = 32
"""Tokens of a row that are not compared: what comes next is anyone's guess there."""
MOST_HELD_OUT = 8
"""One row of so many, at most."""
TOKENS = 3 << 14
"""Of all copies together, where a row each is not more."""
LIKELY = 16
"""Tokens at each place, the first model's likeliest, that distributions are compared over: all such
tokens of all places."""


def losses(
    plan: Plan,
    rows: Sequence[Sequence[int]],
    schemes: Mapping[str, Scheme],
    found: Calibrated,
    progress: Callable[[int, int], None],
) -> dict[str, float]:
    """The model's tensor -> KL divergence (nats a token) when it alone is of its scheme, for those
    of `schemes` whose inputs are rows of tokens. rows: of a text, most to round on, the others for
    the copies to read. `found` gets the matrices as they were rounded.

    Raises CheckpointError for weights that are damaged.
    """
    text, some = _held_out(rows, len(schemes))
    model, weights = runnable(plan, max(map(len, rows))), LayerWeights(plan)
    stage = Rounding(plan, found, schemes, weights).stage(model, text)
    copies = _Copies(plan, found, model, weights, some, list(schemes))
    with one_core():
        layer_by_layer(model.layers, [stage, (copies.steps, weights.forget)], progress)
    return copies.compared()


def _held_out(
    rows: Sequence[Sequence[int]], matrices: int
) -> tuple[list[Sequence[int]], list[Sequence[int]]]:
    """(rows to round on, beginnings of other rows, evenly spread): what was rounded on a text is
    nearer on it than elsewhere. Of a text of one row, both are that one."""
    count = max(1, TOKENS // (ROW_TOKENS * (matrices + 1)))
    count = min(count, -(-len(rows) // MOST_HELD_OUT))
    places = {(2 * i + 1) * len(rows) // (2 * count) for i in range(count)}
    others = [row for i, row in enumerate(rows) if i not in places]
    return others or list(rows), [rows[i][:ROW_TOKENS] for i in sorted(places)]


class _Copies:
    """Rows of a text on their way through a model: once as they are, and a copy for each matrix."""

    def __init__(
        self,
        plan: Plan,
        found: Calibrated,
        model: Runnable,
        weights: LayerWeights,
        rows: Sequence[Sequence[int]],
        names: Sequence[str],
    ) -> None:
        self._sources, self._found, self._weights = plan.sources, found, weights
        self._each = sum(map(len, rows))
        self._compared = np.concatenate([np.arange(len(row)) >= BEFORE for row in rows])
        if not self._compared.any():
            self._compared[:] = True
        nodes = model.graph["nodes"]
        self._head = [n["in"][1][7:] for n in nodes if n["op"] == "mlcc.linear"][-1]
        self._logits = nodes[-1]["out"]
        self._likely = np.empty(0, np.int32)
        """Ids that are compared, once the first forward has told."""
        self._met = set[str]()
        together = max(1, PART_TOKENS // self._each)
        order = _order(nodes)
        names = sorted((name for name in names if name in order), key=order.__getitem__)
        groups = (names[i : i + together] for i in range(0, len(names), together))
        self._names = [[""], *groups]  # the first as it is
        self._forwards = [self._forward(model, rows, some) for some in self._names]
        self._begun: tuple[dict[str, Any], dict[int, Any]] = {}, {}
        """What the first forward had come to where the layer begins that all are in."""
        starts = list(accumulate(model.layers, initial=0))
        first, *others = zip(self._forwards, self._names, strict=True)
        self.steps = [self._first(first[0], starts)]
        for forward, some in others:
            since = max(start for start in starts if start <= order[some[0]])
            self.steps.append(self._from(forward, since))

    def _first(self, forward: Forward, starts: Sequence[int]) -> Iterator[int]:
        """Its steps; what others begin with is kept for them."""
        done = 0
        steps = forward.steps(until="")
        while True:
            if done in starts:
                self._begun = dict(forward.values), dict(forward.asked)
            try:
                done = next(steps)
            except StopIteration:
                return
            yield done

    def _from(self, forward: Forward, since: int) -> Iterator[int]:
        """The steps of copies of the first forward, from the beginning of a layer on."""
        for done in forward.steps(until="", since=since):
            yield done
            if done == since:
                forward.take(*self._begun)

    def _forward(
        self, model: Runnable, rows: Sequence[Sequence[int]], names: Sequence[str]
    ) -> Forward:
        """A forward of a copy for each of `names`."""
        total = len(names) * self._each

        def linear(name: str, source: str, x: Floats) -> Floats:
            if name == self._head:
                return self._likeliest(x)
            y = product(x, self._weights.read(name))
            if name in names and len(x) == total:
                rounded = dequantize(self._found.quantized(self._sources[name]))
                own = self._own(names.index(name))
                y[own] = x[own] @ rounded.T
                self._met.add(name)
            return y

        forward = model.forward([*rows] * len(names), self._weights, linear)
        forward.values["logit_rows"] = np.arange(total, dtype=np.int32)
        return forward

    def compared(self) -> dict[str, float]:
        """Tensor -> divergence of its copy from the rows as they are."""
        first = _log_softmax(self._forwards[0].values[self._logits])
        chances = np.exp(first) * self._compared[:, None] / self._compared.sum()
        found = {}
        for forward, names in zip(self._forwards[1:], self._names[1:], strict=True):
            for i, name in enumerate(names):
                if name in self._met:
                    other = _log_softmax(forward.values[self._logits][self._own(i)])
                    found[name] = float((chances * (first - other)).sum())
        return found

    def _likeliest(self, x: Floats) -> Floats:
        """Logits [n, some tokens], which are those that the first who asks finds likeliest."""
        if not len(self._likely):
            every = self._weights.product(self._head, x)
            top = np.argpartition(every, -min(LIKELY, every.shape[1]), axis=1)[:, -LIKELY:]
            self._likely = np.unique(top).astype(np.int32)
        return product(x, self._weights.rows(self._head, self._likely))

    def _own(self, copy: int) -> slice:
        return slice(copy * self._each, (copy + 1) * self._each)


def _order(nodes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Weight -> the first node that multiplies with it."""
    linear = [(n["in"][1][7:], i) for i, n in enumerate(nodes) if n["op"] == "mlcc.linear"]
    return dict(reversed(linear))


def _log_softmax(logits: Floats) -> Floats:
    shifted = (logits - logits.max(axis=-1, keepdims=True)).astype(np.float64)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
