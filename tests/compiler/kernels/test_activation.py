"""Elementwise kernels and the vector functions under them, against the twin and float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from mlcc.device.reference import ops as twin
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.elementwise import activation, pooling
from mlcc_compiler.kernels.cpu.isa import avx512, vector_math
from mlcc_compiler.kernels.cpu.isa.activations import ACTIVATIONS
from mlcc_compiler.kernels.cpu.isa.bf16_pairs import imported
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import each, span
from mlcc_compiler.kernels.frame import f32, kernel, store
from tests.compiler.kernels.cases.cpu_kernels import BEST, CPUS, Cpu, normal, run

SIZE = 4099
FUNCTIONS = ("exp2", "sigmoid")


def unary(isa: Isa, name: str) -> Any:
    """A kernel of one function of vector_math."""
    function = getattr(vector_math, name)

    def body(x: Any, y: Any) -> None:
        each(SIZE, isa.lanes, lambda i, k: store(y, function(x[span(i, k)]), span(i, k)))

    return kernel(body, x=f32(SIZE), y=f32(SIZE))


def apply(name: str, x: np.ndarray, cpu: Cpu) -> np.ndarray:
    padded = np.zeros(SIZE, np.float32)
    padded[: len(x)] = x
    return run(unary, (name,), [padded], [((SIZE,), "float32")], cpu)[0][: len(x)]


def ulps(y: np.ndarray, exact: np.ndarray) -> float:
    return float((np.abs(y - exact) / np.spacing(np.abs(exact).astype(np.float32))).max())


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_exp(cpu: Cpu) -> None:
    x = np.linspace(-86.8, 88.72, SIZE).astype(np.float32)
    assert ulps(apply("exp", x, cpu), np.exp(x.astype(np.float64))) <= 2
    ends = np.array([0, -0.0, -87, -1000, -np.inf, 88.73, 1000, np.inf, np.nan], np.float32)
    inf = np.inf
    np.testing.assert_array_equal(apply("exp", ends, cpu), [1, 1, 0, 0, 0, inf, inf, inf, np.nan])


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_exp_of_what_is_not_above_zero(cpu: Cpu) -> None:
    """Equal bits with fewer instructions; near the smallest number also exact to 2 ulp."""
    x = np.concatenate([np.linspace(-86, 0, SIZE - 5), [-0.0, -87, -1000, -np.inf, np.nan]])
    x = x.astype(np.float32)
    np.testing.assert_array_equal(apply("exp_falling", x, cpu), apply("exp", x, cpu))
    x = np.linspace(-86.8, -86, SIZE).astype(np.float32)
    assert ulps(apply("exp_falling", x, cpu), np.exp(x.astype(np.float64))) <= 2


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_log_and_softplus(cpu: Cpu) -> None:
    x = np.concatenate([np.logspace(-37, 38, 3000), np.linspace(0.5, 2, 1090)]).astype(np.float32)
    wide = np.log(x.astype(np.float64))
    near = np.abs(wide) < 0.1  # where 1 is near, what is lost is a part of 1's rounding
    assert ulps(apply("log", x, cpu)[~near], wide[~near]) <= 2
    assert ulps(apply("log", x, cpu)[near], wide[near]) <= 3
    x = np.concatenate([np.linspace(-100, 100, 4000), [-1000, 1000]]).astype(np.float32)
    soft = np.logaddexp(x.astype(np.float64), 0)
    error = np.abs(apply("softplus", x, cpu) - soft)
    assert (error <= np.maximum(2e-7, 2 * np.spacing(soft.astype(np.float32)))).all()
    ends = np.array([-np.inf, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(apply("softplus", ends, cpu), [0, np.inf, np.nan])


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_tanh_and_sigmoid(cpu: Cpu) -> None:
    x = np.concatenate([np.linspace(-20, 20, 4000), np.logspace(-30, -1, 90)]).astype(np.float32)
    wide = x.astype(np.float64)
    assert ulps(apply("tanh", x, cpu), np.tanh(wide)) <= 4
    assert ulps(apply("sigmoid", x, cpu), 1 / (1 + np.exp(-wide))) <= 4
    ends = np.array([-np.inf, -1000, 1000, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(apply("tanh", ends, cpu), [-1, -1, 1, 1, np.nan])
    np.testing.assert_array_equal(apply("sigmoid", ends, cpu), [0, 0, 1, 1, np.nan])


def rounded(isa: Isa, name: str) -> Any:
    """A kernel of one function of avx512, whose results are rounded to bf16 elsewhere."""
    function = getattr(avx512, name)

    def body(x: Any, y: Any) -> None:
        with imported(avx512.AVX512_IR), T.serial(SIZE // 16) as i:
            store(y, function(x[span(i * 16, 16)]), span(i * 16, 16))

    return kernel(body, x=f32(SIZE // 16 * 16), y=f32(SIZE // 16 * 16))


@pytest.mark.parametrize("cpu", [c for c in CPUS if "avx512" in c.name], ids=lambda c: c.name)
def test_functions_rounded_for_bf16(cpu: Cpu) -> None:
    ends = np.array([-np.inf, -1000, -126.5, 1000, np.inf, np.nan], np.float32)
    x = np.concatenate([np.linspace(-126, 126, SIZE // 16 * 16 - 6), ends]).astype(np.float32)
    exp2, sigmoid = (run(rounded, (f,), [x], [(x.shape, "float32")], cpu)[0] for f in FUNCTIONS)
    wide = x[:-6].astype(np.float64)
    np.testing.assert_allclose(exp2[:-6], 2.0**wide, rtol=9.1e-5)
    np.testing.assert_array_equal(exp2[-6:], [0, 0, 0, np.inf, np.inf, np.nan])
    np.testing.assert_allclose(sigmoid[:-6], 1 / (1 + np.exp(-wide)), rtol=1.6e-4, atol=1.2e-38)
    np.testing.assert_allclose(sigmoid[-6:], [0, 0, 0, 1, 1, np.nan], rtol=1.6e-4, atol=1.2e-38)


@pytest.mark.parametrize("cpu", CPUS, ids=lambda c: c.name)
def test_gauss_tail(cpu: Cpu) -> None:
    x = np.linspace(-15, 15, SIZE).astype(np.float32)
    exact = [math.erfc(abs(v) / math.sqrt(2)) for v in x.astype(np.float64)]
    np.testing.assert_allclose(apply("gauss_tail", x, cpu), exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", sorted(ACTIVATIONS))
@pytest.mark.parametrize(
    ("cpu", "inner"), [*((cpu, 1541) for cpu in CPUS), (BEST, 64), (BEST, 9000)]
)
def test_gated(cpu: Cpu, kind: str, inner: int) -> None:
    for rows in (0, 1, 7):
        gate, up = normal(rows, rows, inner, scale=3), normal(9, rows, inner)
        expected = twin.gated(gate, up, kind) if rows else np.zeros((0, inner), np.float32)
        out = [((rows, inner), "float32")]
        (y,) = run(activation.gated, ((inner,), (inner,), kind), [gate, up], out, cpu)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=5e-6)
        both = np.concatenate([gate, up], axis=1)
        (y,) = run(activation.gated_fused, ((2 * inner,), kind), [both], out, cpu)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=5e-6)
        (y,) = run(activation.activated, ((inner,), kind), [gate], out, cpu)
        exact = twin.activated(gate, kind) if rows else expected
        np.testing.assert_allclose(y, exact, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_softcap_add_scale(rows: int) -> None:
    size = 5003
    x, y, out = normal(1, rows, size, scale=40), normal(2, rows, size), [((rows, size), "float32")]
    (capped,) = run(activation.softcap, ((size,), 30.0), [x], out)
    np.testing.assert_allclose(capped, twin.softcap(x, 30.0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(run(activation.add, ((size,), (size,)), [x, y], out)[0], x + y)
    np.testing.assert_array_equal(
        run(activation.scale, ((size,), 2.5), [x], out)[0], twin.scale(x, 2.5)
    )
    factors = normal(3, size)
    np.testing.assert_array_equal(
        run(activation.scale_columns, ((size,), (size,)), [x, factors], out)[0], x * factors
    )
    np.testing.assert_array_equal(
        run(activation.subtract_columns, ((size,), (size,)), [x, factors], out)[0], x - factors
    )
    low, high = np.float32([-20.5]), np.float32([33.25])
    (clipped,) = run(activation.clip, ((size,), (1,), (1,)), [x, low, high], out)
    np.testing.assert_array_equal(clipped, twin.clip(x, low, high))
    assert not rows or (clipped.min() == low and clipped.max() == high)


def test_ids_are_replaced() -> None:
    ids = np.array([0, 7, 99, 100, 101, 5000, 99], np.int32)
    (out,) = run(pooling.replace_from, ((), 100, 3), [ids], [((7,), "int32")])
    np.testing.assert_array_equal(out, [0, 7, 99, 3, 3, 3, 99])
