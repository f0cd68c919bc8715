"""Kernels that quantize their output: equal to the two separate kernels, to the bit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.cpu.attention.attention import paged_attention
from mlcc_compiler.kernels.cpu.elementwise import activation, norm
from mlcc_compiler.kernels.cpu.isa.isa import AVX512_BF16
from mlcc_compiler.kernels.cpu.linear import bf16, linear
from mlcc_compiler.kernels.fused_kernels import fuse_kernels
from tests.compiler.kernels.cases import linear_twin as lt
from tests.compiler.kernels.cases.attention import MIXED, Case, inputs
from tests.compiler.kernels.cases.cpu_kernels import normal
from tests.compiler.kernels.linear.test_linear import best

GROUP, SUMS = 32, 16


@cache
def built(kernel: Any) -> Any:
    return lt.build(kernel, best())


def run(kernel: Any, given: list[Any], outputs: list[tuple[tuple[int, ...], str]]) -> list[Any]:
    made = [np.full(shape, 77, dtype) for shape, dtype in outputs]
    tensors = [a if isinstance(a, int) else tvm.runtime.tensor(a) for a in [*given, *made]]
    built(kernel)(*tensors)
    return [t.numpy() for t in tensors[len(given) :]]


def codes_of(rows: int, width: int) -> list[tuple[tuple[int, ...], str]]:
    shapes = [(rows, width), (rows, width // GROUP), (rows, width // SUMS)]
    return list(zip(shapes, ("int8", "float32", "int32"), strict=True))


def check(kernel: Any, given: list[Any], made: list[tuple[tuple[int, ...], str]]) -> None:
    """Rows of the last array are quantized, in any of its shapes."""
    rows, *sizes = made[-1][0]
    width = int(np.prod(sizes))
    reader = linear.quantize_rows(best(), width, GROUP, SUMS)
    apart = run(kernel, given, made)
    apart += run(reader, [apart[-1].reshape(rows, width)], codes_of(rows, width))
    share_input = run(fuse_kernels(kernel, reader), given, [*made, *codes_of(rows, width)])
    for found, expected in zip(share_input, apart, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rows", [0, 1, 7, 90])
def test_norms_and_gates(rows: int) -> None:
    """Serial and parallel; sums that are no whole blocks of vectors; NaN and zeros."""
    size, wide = 192, ((rows, 192), "float32")
    x, residual = normal(0, rows, size), normal(1, rows, size)
    x[1:2], x[2:3, 5], residual[1:2] = 0, np.nan, 0
    weight = normal(2, size)
    check(norm.rms_norm(best(), (size,), (size,), 1e-5, 0.0), [x, weight], [wide])
    sizes = ((size,), (size,), (size,), 1e-5, 1.0)
    check(norm.add_rms_norm(best(), *sizes), [x, residual, weight], [wide, wide])
    both = np.concatenate([x, residual], axis=1)
    check(activation.gated_fused(best(), (2 * size,), "silu"), [both], [wide])


def test_rows_of_bf16() -> None:
    x, weight = normal(0, 5, 64), normal(2, 64)
    first = norm.rms_norm(best(), (64,), (64,), 1e-5, 0.0)
    reader = bf16.round_rows(AVX512_BF16, 64)
    made, bits = ((5, 64), "float32"), ((5, 64), "uint16")
    (apart,) = run(first, [x, weight], [made])
    share_input = run(fuse_kernels(first, reader), [x, weight], [made, bits])
    np.testing.assert_array_equal(share_input[0], apart)
    np.testing.assert_array_equal(share_input[1], *run(reader, [apart], [bits]))


@pytest.mark.parametrize("window", [None, 33])
def test_attention(window: int | None) -> None:
    """A norm over heads, quantized as one row; the pages stay unchanged."""
    case = Case(window=window, dtype="float16")
    for sequences in (MIXED, ((1, 300),)):
        given = inputs(case, sequences, padding=2)
        kernel = paged_attention(best(), *case.arguments)
        check(kernel, [*given.columns, given.sequences], [(given.q.shape, "float32")])
