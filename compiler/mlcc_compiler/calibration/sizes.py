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
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from mlcc_compiler.calibration.forward import forward_of
from mlcc_compiler.calibration.weights import Weights
from mlcc_compiler.plan import Plan

Floats = npt.NDArray[np.float32]

UNSEEN = 0.01
"""What an input of no size counts for, as a share of the mean."""


class _Seen(Exception):
    """All that was asked for is known."""


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
    weights, found = Weights(plan), dict[str, Floats]()
    missing = set(names) if names is not None else None

    def linear(name: str, source: str, x: Floats) -> Floats:
        power = power_of(x)
        if np.isfinite(power).all():  # no text: what overflows on random tokens tells nothing
            found.setdefault(plan.sources[name], power)
        if missing is not None:
            missing.discard(name)
            if not missing:
                raise _Seen
        return weights.product(name, x)

    with suppress(_Seen):
        forward_of(plan, rows, weights, linear).run(progress, "logit_rows")
    return found


def power_of(x: Floats) -> Floats:
    """[K] mean squares of inputs [n, K], as shares of their mean; inputs that few rows did not
    show count for something."""
    power = np.square(x).mean(axis=0)
    if not power.any():
        return np.ones_like(power)
    power += np.float32(UNSEEN) * power.mean()
    return np.asarray(power / power.mean(), np.float32)
