"""Activation statistics from random tokens, for compiles without a calibration text.

Which channels of a model are large hardly depends on its input. Without that knowledge the search
for scales and minima spends a group's grid on weights whose inputs are near zero; with it, errors
are weighted by the inputs' mean squares (as in llama.cpp's importance matrix, which needs a text).
Correlations between random tokens are meaningless, so only the magnitudes are used. The search is
`quantization/grid_search.py`, texts are `calibrate.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mlcc_compiler.calibration.forward import UNTIL_HEAD, make_forward
from mlcc_compiler.calibration.weights import Weights, single_threaded_blas
from mlcc_compiler.plan import Plan

Floats = npt.NDArray[np.float32]

MIN_SHARE = 0.01
"""Weight of an input that is always zero, as a share of the mean."""


def activation_statistics(
    plan: Plan,
    rows: Sequence[Sequence[int]],
    progress: Callable[[int, int], None],
    names: Collection[str] | None = None,
) -> Mapping[str, Floats]:
    """Checkpoint tensor -> [K], the `mean_squares` of its inputs on rows of token ids.

    names: the model's tensors to measure; None = all. The forward stops once all of them are
    measured. Raises CheckpointError for damaged weights.
    """
    weights, found, met = Weights(plan), dict[str, Floats](), set[str]()

    def linear(name: str, source: str, x: Floats) -> Floats:
        power = mean_squares(x)
        if power is not None:
            found.setdefault(plan.sources[name], power)
        met.add(name)
        return weights.matmul(name, x)

    forward = make_forward(plan, rows, weights, linear)
    total = len(forward.graph["nodes"])
    with single_threaded_blas():
        for done in forward.steps(UNTIL_HEAD):
            progress(done, total)
            if names is not None and met.issuperset(names):
                break
    return found


def mean_squares(x: Floats) -> Floats | None:
    """[K] mean squares of inputs [n, K], as shares of their mean, with a floor for inputs that
    these few rows leave at zero. None if one is infinite: an overflow on random tokens says nothing
    about text."""
    power = np.square(x).mean(axis=0)
    if not np.isfinite(power).all():
        return None
    if not power.any():
        return np.ones_like(power)
    power += np.float32(MIN_SHARE) * power.mean()
    return np.asarray(power / power.mean(), np.float32)
