"""VDPBF16PS: weights and activations of bf16 against their twin, also at extreme numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from mlcc.util.machine import cpu_features
from mlcc_compiler.kernels.cpu.isa import bf16_pairs, isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.kernels.cpu.linear.bf16 import round_rows, uses_bf16_dot
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.cases import linear_twin as lt

BF16, CPU = scheme("bf16"), isa.AVX512_BF16

runs_here = pytest.mark.skipif("avx512bf16" not in cpu_features(), reason="no AVX512-BF16 here")


@cache
def rounding(k: int) -> Any:
    return lt.build(round_rows(CPU, k), CPU)


def bits_of(x: Any) -> Any:
    (bits,) = lt.call(rounding(x.shape[1]), [x], [(x.shape, "uint16")])
    return bits


def floats(bits: Any) -> Any:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@np.errstate(invalid="ignore")
def nearest(x: Any) -> Any:
    """The nearest bf16, a tie to the even one; by comparing both neighbours."""
    below = (x.view(np.uint32) >> 16).astype(np.uint16)
    low, high = floats(below).astype(np.float64), floats(below + np.uint16(1)).astype(np.float64)
    high = np.where(np.isinf(high) & np.isfinite(x), np.sign(low) * 2.0**128, high)
    nearer = np.abs(high - x) < np.abs(low - x)
    tie = np.abs(high - x) == np.abs(low - x)
    return below + np.where(nearer | (tie & (below % 2 == 1)), 1, 0).astype(np.uint16)


def test_where_it_is_used() -> None:
    assert uses_bf16_dot(CPU, 64, BF16)
    assert not uses_bf16_dot(isa.AVX512_VNNI, 64, BF16)
    assert not uses_bf16_dot(CPU, 63, BF16) and not uses_bf16_dot(CPU, 64, scheme("f16"))
    features = ("avx512f", "avx512bw", "avx512vl", "avx512vnni", "avx512vbmi", "avx512bf16")
    assert isa.Isa.from_features("x86_64", features) == CPU


def test_it_compiles_to_the_instruction() -> None:
    """On any machine; inlined, and one a pair of registers."""
    text = lt.executable(linear.linear(CPU, 64, 64, "bf16", False), CPU).inspect_source("asm")
    assert text.count("vdpbf16ps") > 100
    assert "callq\t" + bf16_pairs.DOT2 not in text


@runs_here
def test_rounding() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 1 << 32, (40, 66), np.uint32).view(np.float32)
    ties = (rng.integers(0, 1 << 16, (3, 66), np.uint32) << 16 | 0x8000).view(np.float32)
    x = np.concatenate([x, ties, np.zeros((1, 66), np.float32)])
    x[0, :6] = 0.0, -0.0, np.inf, -np.inf, np.finfo(np.float32).max, 1e-45
    bits, nan = bits_of(x), np.isnan(x)
    np.testing.assert_array_equal(bits[~nan], nearest(np.where(nan, 1, x))[~nan])
    assert np.isnan(floats(bits)[nan]).all() and nan.sum() > 5


@runs_here
@pytest.mark.parametrize(
    ("n_out", "k", "bias"), [(1, 2, False), (33, 34, True), (64, 130, False), (70, 256, True)]
)
def test_against_the_twin(n_out: int, k: int, bias: bool) -> None:
    """Sizes that end within tiles and within unrolled steps; equal bits in any batch."""
    rng = np.random.default_rng(k)
    packing = linear.packing(n_out, k, BF16, CPU)
    stored = packing.pack(rng.standard_normal((n_out, k)).astype(np.float32))
    b = [rng.standard_normal(n_out).astype(np.float32)] * bias
    x = bits_of(rng.standard_normal((17, k)).astype(np.float32))
    kernel = lt.linear_kernel(n_out, k, BF16, CPU, bias)
    (whole,) = lt.call(kernel, [x, *stored, *b], [((17, n_out), "float32")])
    expected = lt.twin(floats(x), packing.unpack(stored), b[0] if b else None)
    assert lt.relative_error(whole, expected) < 1e-5
    for n in (0, 1, 2, 3, 5, 8):
        (y,) = lt.call(kernel, [x[:n], *stored, *b], [((n, n_out), "float32")])
        np.testing.assert_array_equal(y, whole[:n])


@runs_here
def test_each_product_meets_its_own_column_and_row() -> None:
    """Weights with one nonzero per column, powers of two: exact in any order of sums."""
    n_out, k = 64, 64
    weight = np.zeros((n_out, k), np.float32)
    weight[np.arange(n_out), (7 * np.arange(n_out)) % k] = 2.0 ** (np.arange(n_out) % 9 - 4)
    packing = linear.packing(n_out, k, BF16, CPU)
    x = np.arange(5 * k, dtype=np.float32).reshape(5, k) % 255
    kernel = lt.linear_kernel(n_out, k, BF16, CPU, False)
    (y,) = lt.call(kernel, [bits_of(x), *packing.pack(weight)], [((5, n_out), "float32")])
    np.testing.assert_array_equal(y, x @ weight.T)


@runs_here
def test_what_is_not_finite_stays_so() -> None:
    packing = linear.packing(32, 32, BF16, CPU)
    stored = packing.pack(np.ones((32, 32), np.float32))
    x = np.ones((4, 32), np.float32)
    x[0, 3], x[1, 5], x[2, :2] = np.nan, np.inf, (np.inf, -np.inf)
    kernel = lt.linear_kernel(32, 32, BF16, CPU, False)
    (y,) = lt.call(kernel, [bits_of(x), *stored], [((4, 32), "float32")])
    assert np.isnan(y[0]).all() and np.isposinf(y[1]).all() and np.isnan(y[2]).all()
    assert (y[3] == 32).all()
