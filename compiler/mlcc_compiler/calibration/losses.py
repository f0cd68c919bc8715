"""What rounding costs a model, matrix by matrix: the divergence of its next tokens when one alone
is rounded.

All in one forward. The same few rows of a text go through the model once as they are, and once more
for each matrix, whose products in that copy are of rounded weights; at the end each copy's
distribution is compared with the first's. So a weight is read once, and what happens to an error on
its way (a norm that makes it small, a layer that hangs on one channel) needs no model of its own.
Not here: what is done about it (`budget.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mlcc_compiler.calibration.calibrate import Calibrated, Rounding
from mlcc_compiler.calibration.forward import forward_of
from mlcc_compiler.calibration.weights import Weights, one_core, product
from mlcc_compiler.plan import Plan
from mlcc_compiler.quantization import Scheme, dequantize

Floats = npt.NDArray[np.float32]

ROW_TOKENS = 128
BEFORE = 32
"""Tokens of a row that are not compared: what comes next is anyone's guess there."""
MOST_HELD_OUT = 8
"""One row of so many, at most."""
TOKENS = 1 << 14
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
    with one_core():
        return _Copies(plan, rows, schemes, found).compared(progress)


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
    """A text on its way through a model, and behind it some rows of it as they are, and a copy of
    those for each matrix."""

    def __init__(
        self,
        plan: Plan,
        rows: Sequence[Sequence[int]],
        schemes: Mapping[str, Scheme],
        found: Calibrated,
    ) -> None:
        self._sources, self._found = plan.sources, found
        self._weights, self._rounding = Weights(plan), Rounding(plan, found, schemes)
        text, some = _held_out(rows, len(schemes))
        self._text, self._each = sum(map(len, text)), sum(map(len, some))
        """Tokens of the text, and of one copy."""
        self._compared = np.concatenate([np.arange(len(row)) >= BEFORE for row in some])
        if not self._compared.any():
            self._compared[:] = True
        self._copy = {name: 1 + i for i, name in enumerate(schemes)}
        self._met = set[str]()
        copies = 1 + len(schemes)
        self._total = self._text + copies * self._each
        self._forward = forward_of(plan, [*text, *some * copies], self._weights, self._linear)
        wanted = np.arange(self._text, self._total, dtype=np.int32)
        self._forward.values["logit_rows"] = wanted
        nodes = self._forward.graph["nodes"]
        self._head = [n["in"][1][7:] for n in nodes if n["op"] == "mlcc.linear"][-1]
        self._logits = nodes[-1]["out"]

    def compared(self, progress: Callable[[int, int], None]) -> dict[str, float]:
        """As `losses`."""
        self._forward.run(progress, until="")
        logits = self._forward.values[self._logits]
        own = _log_softmax(self._of(0, logits))
        chances = np.exp(own) * self._compared[:, None]
        found = {}
        for name in self._met:
            other = _log_softmax(self._of(self._copy[name], logits))
            found[name] = float((chances * (own - other)).sum() / self._compared.sum())
        return found

    def _linear(self, name: str, source: str, x: Floats) -> Floats:
        if name == self._head:
            return self._likely(name, x)
        weight = self._weights.read(name)
        y = product(x, weight)
        if name in self._copy and len(x) == self._total:
            self._rounding.meet(name, source, x[: self._text], weight)
            rounded = dequantize(self._found.quantized(self._sources[name]))
            copy = self._copy[name]
            self._of(copy, y[self._text :])[:] = self._of(copy, x[self._text :]) @ rounded.T
            self._met.add(name)
        return y

    def _likely(self, head: str, x: Floats) -> Floats:
        """Logits [n, some tokens] of the copies."""
        first = self._weights.product(head, self._of(0, x))
        top = np.argpartition(first, -min(LIKELY, first.shape[1]), axis=1)[:, -LIKELY:]
        return product(x, self._weights.rows(head, np.unique(top).astype(np.int32)))

    def _of(self, copy: int, values: Floats) -> Floats:
        return values[copy * self._each : (copy + 1) * self._each]


def _log_softmax(logits: Floats) -> Floats:
    shifted = (logits - logits.max(axis=-1, keepdims=True)).astype(np.float64)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))
