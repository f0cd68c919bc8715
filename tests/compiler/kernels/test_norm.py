"""RMS norm kernels against the twin."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc_compiler.kernels.cpu.elementwise import norm
from tests.compiler.kernels.cases.cpu_kernels import CPUS, Cpu, normal, run

EPS = 1e-5


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize(("hidden", "offset"), [(576, 0.0), (1000, 1.0), (7, 0.0), (64, 0.0)])
@pytest.mark.parametrize("rows", [0, 1, 3, 50])
def test_rows(cpu: Cpu, hidden: int, offset: float, rows: int) -> None:
    x, w = normal(rows, rows, hidden, scale=3), normal(1, hidden)
    (y,) = run(
        norm.rms_norm,
        ((hidden,), (hidden,), EPS, offset),
        [x, w],
        [((rows, hidden), "float32")],
        cpu,
    )
    np.testing.assert_allclose(y, twin.rms_norm(x, w, EPS, offset), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
@pytest.mark.parametrize(("size", "offset"), [(576, 0.0), (1000, 1.0), (7, 0.0)])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("rows", [0, 1, 30])
def test_layer_norm(cpu: Cpu, size: int, offset: float, bias: bool, rows: int) -> None:
    """LayerNorm also for rows far from 0: the deviation is computed after the mean is
    subtracted."""
    x, w, b = normal(rows, rows, size) + 30, normal(1, size), [normal(2, size)] * bias
    arguments = ((size,), (size,), *[(size,)] * bias, EPS, offset)
    (y,) = run(norm.layer_norm, arguments, [x, w, *b], [((rows, size), "float32")], cpu)
    exact = twin.layer_norm(x.astype(np.float64), w, *b, EPS, offset)
    np.testing.assert_allclose(y, exact, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_heads(rows: int) -> None:
    x, w = normal(rows, rows, 9, 80), normal(1, 80)
    (y,) = run(norm.rms_norm, ((9, 80), (80,), EPS, 1.0), [x, w], [((rows, 9, 80), "float32")])
    np.testing.assert_allclose(y, twin.rms_norm(x, w, EPS, 1.0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", [0, 1, 40])
def test_sum_and_norm(rows: int) -> None:
    x, residual, w = normal(rows, rows, 577), normal(2, rows, 577), normal(1, 577)
    total, y = run(
        norm.add_rms_norm,
        (*[(577,)] * 3, EPS, 0.0),
        [x, residual, w],
        [((rows, 577), "float32")] * 2,
    )
    expected_total, expected = twin.add_rms_norm(x, residual, w, EPS)
    np.testing.assert_array_equal(total, expected_total)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_zero_row_is_zero_and_nan_stays_in_its_row() -> None:
    x, w = np.zeros((3, 576), np.float32), normal(1, 576)
    x[1, 5] = np.nan
    (y,) = run(norm.rms_norm, ((576,), (576,), EPS, 0.0), [x, w], [((3, 576), "float32")])
    assert (y[[0, 2]] == 0).all()
    assert np.isnan(y[1]).all()
