"""GPTQ's rounding with feedback: less error where inputs are correlated, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.errors import UnsupportedError
from mlcc_compiler.calibration import gptq
from mlcc_compiler.calibration.activation_stats import mean_squares
from mlcc_compiler.calibration.calibrate import round_matrix
from mlcc_compiler.calibration.gptq import Grid, Moments, gptq_round
from mlcc_compiler.quantization import dequantize, quantize, scheme

RNG = np.random.default_rng(5)
N, K = 48, 128
WEIGHT = RNG.standard_normal((N, K)).astype(np.float32)


def inputs(common: float) -> Any:
    """x [n, K] of which so much is made of eight directions, channels of unequal size."""
    shared = RNG.standard_normal((600, 8)) @ RNG.standard_normal((8, K))
    x = common * shared + RNG.standard_normal((600, K))
    return (x * np.exp(RNG.standard_normal(K))).astype(np.float32)


def error(weight: Any, x: Any) -> float:
    """The squared error of the product with x, as a share of its square."""
    return float((((weight - WEIGHT) @ x.T) ** 2).sum() / ((WEIGHT @ x.T) ** 2).sum())


@pytest.mark.parametrize("name", ["k4_g32", "k3_g64", "k6_g32", "q4_k", "int4_g32", "int4a_g32"])
def test_errors_fall_where_inputs_have_something_in_common(name: str) -> None:
    how, x = scheme(name), inputs(common=1.0)
    plain = quantize(WEIGHT, how)
    rounded = round_matrix(WEIGHT, how, Moments.of(x.T @ x))
    rounded.check(name)
    assert error(dequantize(rounded), x) < 0.4 * error(dequantize(plain), x)


@pytest.mark.parametrize("name", ["k4_g32", "k6_g32", "int4_g32", "t4_g32"])
def test_each_time_through_the_columns_leaves_less_error(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how, x = scheme(name), inputs(common=1.0)
    left, moments = [], Moments.of(x.T @ x)
    second = np.empty_like(moments.second)
    second[np.ix_(moments.order, moments.order)] = moments.second
    for sweeps in range(4):
        monkeypatch.setattr(gptq, "SWEEPS", sweeps)
        wrong = dequantize(round_matrix(WEIGHT, how, moments)) - WEIGHT
        left.append(float(((wrong @ second) * wrong).sum()))
    assert left == sorted(left, reverse=True)
    assert left[2] < 0.99 * left[0]


def test_no_single_code_could_be_better_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gptq, "SWEEPS", 40)
    scale, offset = np.full((N, K // 32), 0.3, np.float32), np.full((N, K // 32), -2, np.float32)
    x = inputs(common=0.5)
    moments = Moments.of(x.T @ x)
    grid = Grid(scale, offset, np.arange(16, dtype=np.float32))
    codes = gptq_round(WEIGHT, grid, moments, cores=1).astype(np.float32)
    second = np.empty_like(moments.second)
    second[np.ix_(moments.order, moments.order)] = moments.second
    slope = (codes * 0.3 - 2 - WEIGHT) @ second
    for step in (-0.3, 0.3):
        gain = 2 * step * slope + step * step * second.diagonal()
        allowed = (codes > 0) if step < 0 else (codes < 15)
        assert (gain[allowed] > -1e-3).all()


def test_the_power_of_inputs_is_their_mean_square() -> None:
    x = inputs(common=0.3)
    x[:, 5] = 0
    power = mean_squares(x)
    assert power.mean() == pytest.approx(1, rel=1e-5) and power.argmin() == 5
    assert 0.005 < power[5] < 0.02
    assert np.corrcoef(power, (x**2).mean(axis=0))[0, 1] > 0.999
    assert (mean_squares(np.zeros((3, K), np.float32)) == 1).all()


def test_inputs_without_anything_in_common_change_nothing() -> None:
    scale, offset = np.full((N, K // 32), 0.1, np.float32), np.full((N, K // 32), -0.8, np.float32)
    second = np.diag(RNG.uniform(1, 9, K)).astype(np.float32)
    grid = Grid(scale, offset, np.arange(16, dtype=np.float32))
    codes = gptq_round(WEIGHT, grid, Moments.of(second), cores=2)
    assert (codes == np.clip(np.rint((WEIGHT + 0.8) / 0.1), 0, 15)).all()


def test_the_factor_is_of_the_second_moments_in_the_order_of_rounding() -> None:
    x = inputs(common=0.3)
    second = x.T @ x
    moments = Moments.of(second.copy())
    ordered = second[np.ix_(moments.order, moments.order)] / second.diagonal().mean()
    made = moments.factor @ moments.factor.T
    np.testing.assert_allclose(made - made.diagonal() * np.eye(K), ordered - np.diag(
        ordered.diagonal()), atol=1e-2)  # fmt: skip
    assert (np.tril(moments.factor, -1) == 0).all()
    assert (np.diff(moments.power[moments.order]) <= 0).all()


@pytest.mark.parametrize("second", [np.zeros((K, K)), np.ones((K, K))])
def test_inputs_that_are_dead_or_alike_are_no_error(second: Any) -> None:
    rounded = round_matrix(WEIGHT, scheme("k4_g32"), Moments.of(second.astype(np.float32)))
    assert np.isfinite(dequantize(rounded)).all()
    assert np.abs(dequantize(rounded) - WEIGHT).max() < 3


def test_searches_for_given_powers_help_those_inputs() -> None:
    how, power = scheme("k3_g32"), np.exp(3 * RNG.standard_normal(K)).astype(np.float32)
    plain, weighted = (dequantize(quantize(WEIGHT, how, p)) for p in (None, power))
    assert ((weighted - WEIGHT) ** 2 @ power).sum() < 0.8 * ((plain - WEIGHT) ** 2 @ power).sum()
    assert ((weighted - WEIGHT) ** 2).sum() > ((plain - WEIGHT) ** 2).sum()


def test_a_float_scheme_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="float format"):
        quantize(WEIGHT, scheme("bf16"), np.ones(K, np.float32))
