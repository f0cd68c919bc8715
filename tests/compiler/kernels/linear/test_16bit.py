"""Activations of 16 bits in two parts of 8: the numbers that the parts represent, and products with
them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.quantization import scheme
from tests.compiler.kernels.cases import linear_twin as lt
from tests.compiler.kernels.cases.scheme import KERNELS
from tests.compiler.kernels.linear.test_linear import HERE, best, host_runs
from tests.compiler.kernels.test_moe import check as check_experts

BEST = replace(best(), activation_parts=2)
CODES = [name for name in KERNELS if not scheme(name).is_float]


def rows(n: int, k: int) -> np.ndarray:
    rng = np.random.default_rng(n + k)
    return (rng.standard_normal((n, k)) * 10.0 ** rng.integers(-6, 6, (n, 1))).astype(np.float32)


def stands_for(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The numbers that two parts of codes and scales represent."""
    k, groups = codes.shape[1] // 2, scales.shape[1] // 2
    first, second = (
        lt.dequantize_rows(codes[:, part * k :][:, :k], scales[:, part * groups :][:, :groups])
        for part in range(2)
    )
    return np.asarray(first + second)


@pytest.mark.parametrize(("k", "group", "sums"), [(64, 32, 16), (48, 16, 16), (36, 36, 36)])
def test_two_parts_are_the_row_to_sixteen_bits(k: int, group: int, sums: int) -> None:
    for n in (1, 5, 600):
        x = rows(n, k)
        codes, scales, found = lt.quantize_rows(x, group, BEST, sums)
        most = np.abs(x.reshape(n, -1, group)).max(axis=2, initial=0)
        step = np.repeat(most / (127 * 254), group, axis=1).astype(np.float64)
        assert (np.abs(stands_for(codes, scales) - x) <= step * 0.52).all()
        expected = codes.reshape(n, -1, sums).sum(axis=2, dtype=np.int32)
        np.testing.assert_array_equal(found, expected)
        assert (codes != -128).all()  # AVX2's products would overflow


def test_the_first_part_is_the_row_in_eight_bits() -> None:
    x = rows(5, 96)
    both, alone = lt.quantize_rows(x, 32, BEST), lt.quantize_rows(x, 32, best())
    for wide, narrow in zip(both, alone, strict=True):
        np.testing.assert_array_equal(wide[:, : narrow.shape[1]], narrow)


def check(n_out: int, k: int, name: str, cpu: Isa, bias: bool, counts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(n_out * k)
    packing = linear.packing(n_out, k, name, cpu)
    stored = packing.pack((rng.standard_normal((n_out, k)) + 0.1).astype(np.float32))
    weight = packing.unpack(stored)
    b = rng.standard_normal(n_out).astype(np.float32) if bias else None
    kernel = lt.linear_kernel(n_out, k, scheme(name), cpu, bias)
    for n in counts:
        x = rng.standard_normal((n, k)).astype(np.float32)
        inputs = lt.rows_for(x, scheme(name), cpu)
        arguments = [*inputs, *stored, *([] if b is None else [b])]
        (y,) = lt.call(kernel, arguments, [((n, n_out), "float32")])
        seen = stands_for(inputs[0], inputs[1])
        assert lt.relative_error(y, lt.twin(seen, weight, b)) < 1e-5, (n, name)
        assert lt.relative_error(y, lt.twin(x, weight, b)) < 5e-5, (n, name)


@pytest.mark.parametrize("name", CODES)
def test_every_scheme(name: str) -> None:
    check(40, 384, name, BEST, True, (0, 1, 2, 3, 7))


@pytest.mark.parametrize("cpu", HERE[1:], ids=lambda c: c.name)
def test_other_instruction_sets(cpu: Isa) -> None:
    if not host_runs(cpu):
        pytest.skip(f"this machine has no {cpu.name}")
    for name in ("int8a_g32", "q4_k", "int5_g24"):
        check(35, 288, name, replace(cpu, activation_parts=2), True, (1, 2, 5))


@pytest.mark.parametrize("each", [True, False])
def test_experts(each: bool) -> None:
    check_experts((6, 20, 64), "k4_g32", 3, 2, each, BEST, (0, 1, 7))
