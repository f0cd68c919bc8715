"""How large the inputs of a model's matrices are, seen on a few random tokens, for compiles that
are given no text.

Which channels are large is nearly the same whatever a model reads. Where it is not known, the
search for scales and minima spends a group's grid on weights that meet nothing; where it is, errors
weigh by it (the importance matrix of llama.cpp, which takes a text). What random tokens have in
common is chance, so no more than the sizes is taken of them. Not here: the search
(`quantization/ranges.py`), texts (`calibrate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mlcc_compiler.calibration.forward import UNTIL_HEAD, forward_of
from mlcc_compiler.calibration.weights import Weights, one_core
from mlcc_compiler.plan import Plan

Floats = npt.NDArray[np.float32]

UNSEEN = 0.01
"""What an input of no size counts for, as a share of the mean."""


def input_sizes(
    plan: Plan,
    rows: Sequence[Sequence[int]],
    progress: Callable[[int, int], None],
    names: Collection[str] | None = None,
) -> Mapping[str, Floats]:
    """The checkpoint's tensor -> [K], `power_of` its inputs on rows of token ids.

    names: of these of the model's tensors, or of all; the model is run no further than they ask.
    Raises CheckpointError for weights that are damaged.
    """
    weights, found, met = Weights(plan), dict[str, Floats](), set[str]()

    def linear(name: str, source: str, x: Floats) -> Floats:
        power = power_of(x)
        if power is not None:
            found.setdefault(plan.sources[name], power)
        met.add(name)
        return weights.product(name, x)

    forward = forward_of(plan, rows, weights, linear)
    total = len(forward.graph["nodes"])
    with one_core():
        for done in forward.steps(UNTIL_HEAD):
            progress(done, total)
            if names is not None and met.issuperset(names):
                break
    return found


def power_of(x: Floats) -> Floats | None:
    """[K] mean squares of inputs [n, K], as shares of their mean; inputs that few rows did not
    show count for something. None if one is infinite: random tokens are no text, and what overflows
    on them tells nothing."""
    power = np.square(x).mean(axis=0)
    if not np.isfinite(power).all():
        return None
    if not power.any():
        return np.ones_like(power)
    power += np.float32(UNSEEN) * power.mean()
    return np.asarray(power / power.mean(), np.float32)
