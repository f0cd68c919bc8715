"""Activation quantization: round to even, zero rows, NaN and Inf, every group length."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc_compiler.kernels.cpu.isa import isa
from tests.compiler.kernels.cases import linear_twin as lt
from tests.compiler.kernels.linear.test_linear import HERE, best, host_runs


@pytest.mark.parametrize(
    ("k", "group"), [(64, 32), (48, 16), (256, 128), (36, 36), (40, 4), (24, 12)]
)
def test_codes_scales_and_sums(k: int, group: int) -> None:
    rng = np.random.default_rng(k)
    for n in (0, 1, 3, 600):
        x = (rng.standard_normal((n, k)) * 10.0 ** rng.integers(-6, 6, (n, 1))).astype(np.float32)
        codes, scales, sums = lt.quantize_rows(x, group, best())
        _check(x, codes, scales, sums, group)


def test_sums_of_half_a_group() -> None:
    x = np.random.default_rng(2).standard_normal((7, 96)).astype(np.float32)
    codes, scales, sums = lt.quantize_rows(x, 32, best(), 16)
    whole = lt.quantize_rows(x, 32, best())
    np.testing.assert_array_equal(codes, whole[0])
    np.testing.assert_array_equal(scales, whole[1])
    np.testing.assert_array_equal(sums, codes.reshape(7, 6, 16).sum(axis=2, dtype=np.int32))


@pytest.mark.parametrize("cpu", HERE, ids=lambda c: c.name)
def test_every_instruction_set(cpu: isa.Isa) -> None:
    if not host_runs(cpu):
        pytest.skip(f"this machine has no {cpu.name}")
    x = np.random.default_rng(1).standard_normal((5, 64)).astype(np.float32)
    _check(x, *lt.quantize_rows(x, 32, cpu), 32)


def _check(x: np.ndarray, codes: np.ndarray, scales: np.ndarray, sums: np.ndarray, g: int) -> None:
    n, k = x.shape
    groups = x.reshape(n, k // g, g).astype(np.float64)
    signed = codes.reshape(groups.shape).astype(np.int64)
    np.testing.assert_allclose(scales, np.abs(groups).max(axis=2, initial=0) / 127, rtol=1e-6)
    assert (np.abs(signed) <= 127).all()
    assert (np.abs(groups - signed * scales[:, :, None]) <= scales[:, :, None] * 0.50001).all()
    np.testing.assert_array_equal(sums, signed.sum(axis=2))


def test_half_rounds_to_even() -> None:
    x = np.zeros((1, 32), np.float32)
    x[0, :6] = [127, 0.5, 1.5, 2.5, -0.5, -1.5]
    codes, _, _ = lt.quantize_rows(x, 32, best())
    assert codes[0, :6].tolist() == [127, 0, 2, 2, 0, -2]


def test_zero_and_subnormal_groups() -> None:
    x = np.zeros((2, 64), np.float32)
    x[1, 3] = 1e-42
    codes, scales, sums = lt.quantize_rows(x, 32, best())
    assert not codes.any() and not sums.any()
    assert np.isfinite(scales).all() and scales.max() < 1e-40


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_not_finite_stays_not_finite(bad: float) -> None:
    x = np.ones((2, 64), np.float32)
    x[0, 40] = bad
    codes, scales, _ = lt.quantize_rows(x, 32, best())
    assert not np.isfinite(scales[0, 1])
    assert np.isfinite(scales[[0, 1, 1], [0, 0, 1]]).all()
    assert (codes[1] == 127).all()
