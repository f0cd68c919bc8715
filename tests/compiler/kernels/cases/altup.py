"""Checks of Gemma 3n's kernels, and of the growth of queries, against the twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mlcc.device.reference import altup, ops

Run = Callable[..., list[Any]]
"""(factory, arguments, inputs, outputs) -> the outputs."""


def _normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check_mix(run: Run, factory: Any) -> None:
    for n, parts, out, modes, hidden in ((0, 2, 2, 2, 8), (1, 1, 4, 4, 5), (9, 4, 4, 4, 96)):
        x, m, c = (
            _normal(0, n, parts * hidden),
            _normal(1, n, modes),
            _normal(2, out * parts, modes),
        )
        sizes = ((parts * hidden,), (modes,), c.shape)
        (y,) = run(factory, (*sizes, parts, 0.5, 1.0), [x, m, c], [((n, out * hidden), "float32")])
        expected = altup.mix(x, m, c, parts, 0.5, 1.0)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def check_match_magnitude(run: Run, factory: Any) -> None:
    """The kernel equals the twin, also for rows of zeros and of small numbers."""
    for n, size in ((0, 8), (1, 5), (4, 300)):
        x, like = _normal(3, n, size), _normal(4, n, size) * 7
        x[2:] *= np.array([1e-4, 0.0], np.float32)[: max(0, n - 2), None]
        (y,) = run(factory, ((size,), (size,), 1e-5), [x, like], [((n, size), "float32")])
        expected = altup.match_magnitude(x, like, 1e-5)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def check_above(run: Run, factory: Any) -> None:
    for n, size in ((0, 8), (1, 5), (4, 300)):
        x = _normal(5, n, size) * 3 + 1
        (y,) = run(factory, ((size,), 0.7), [x], [((n, size), "float32")])
        np.testing.assert_allclose(y, altup.above(x, 0.7), rtol=1e-4, atol=2e-5)
        assert n == 0 or 0 < np.count_nonzero(y) < y.size


def check_growth(run: Run, factory: Any) -> None:
    positions = np.array([0, 15, 16, 47, 48, 131071], np.int32)
    (y,) = run(factory, ((), 0.1, 16), [positions], [((6, 1), "float32")])
    np.testing.assert_allclose(y, ops.growth(positions, 0.1, 16), rtol=0, atol=2e-6)
    assert y[:2].max() < 1.00001 < y[2:].min()
