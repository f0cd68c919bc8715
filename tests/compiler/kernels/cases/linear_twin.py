"""Naive twins of the linear kernels in float64, and the compiled kernels behind numpy calls."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.ir._tvm import tvm
from mlcc_compiler.kernels.cpu.elementwise import embedding
from mlcc_compiler.kernels.cpu.isa import isa
from mlcc_compiler.kernels.cpu.linear import linear
from mlcc_compiler.quantization import Scheme
from tests.compiler.kernels.cases import cpu_kernels
from tests.compiler.kernels.cases.cpu_kernels import Options

Floats = npt.NDArray[np.float32]

_VBMI = ("+avx512vnni", "+avx512vbmi")
_BF16 = (*_VBMI, "+avx512bf16")
_LLVM: dict[isa.Isa, Options] = {
    isa.AVX512_VNNI: (("mcpu", "x86-64-v4"), ("mattr", ("+avx512vnni",))),
    isa.AVX512_VBMI: (("mcpu", "x86-64-v4"), ("mattr", _VBMI)),
    isa.AVX512_BF16: (("mcpu", "x86-64-v4"), ("mattr", _BF16)),
    isa.AVX512_AMX: (
        ("mcpu", "x86-64-v4"),
        ("mattr", (*_BF16, "+amx-tile", "+amx-bf16", "+amx-int8")),
    ),
    isa.AVX2_VNNI: (("mcpu", "x86-64-v3"), ("mattr", ("+avxvnni",))),
    isa.AVX2: (("mcpu", "haswell"),),
    isa.SSE2: (("mcpu", "x86-64"),),
    isa.GENERIC: (("mcpu", "x86-64"),),
    isa.NEON_I8MM: (("mtriple", "aarch64-linux-gnu"), ("mattr", ("+dotprod", "+i8mm"))),
    isa.NEON_DOTPROD: (("mtriple", "aarch64-linux-gnu"), ("mattr", ("+dotprod",))),
    isa.NEON: (("mtriple", "aarch64-linux-gnu"),),
}


def plain(cpu: isa.Isa) -> isa.Isa:
    """The CPU as a compile would choose it, independent of a test's layout and activations."""
    return replace(cpu, activation_parts=1, tile_columns=0, stored_signed=None)


def build(kernel: Any, cpu: isa.Isa) -> Any:
    """One PrimFunc for an instruction set of this machine, ready to be called."""
    return cpu_kernels.loaded(kernel, _LLVM[plain(cpu)])


def executable(kernel: Any, cpu: isa.Isa) -> Any:
    """One PrimFunc for any instruction set, to be read or linked."""
    return cpu_kernels.executable(kernel, _LLVM[plain(cpu)])


@cache
def linear_kernel(n: int, k: int, scheme: Scheme, cpu: isa.Isa, bias: bool) -> Any:
    return build(linear.linear(cpu, n, k, scheme, bias), cpu)


@cache
def rows_kernel(k: int, group: int, sums: int, cpu: isa.Isa) -> Any:
    return build(linear.quantize_rows(cpu, k, group, sums), cpu)


@cache
def merged_kernel(parts: tuple[tuple[int, Scheme], ...], k: int, cpu: isa.Isa, bias: bool) -> Any:
    return build(linear.linear_merged(cpu, parts, k, bias), cpu)


@cache
def embedding_kernel(vocab: int, hidden: int, scheme: Scheme, cpu: isa.Isa, packed: bool) -> Any:
    factory = embedding.embedding_packed if packed else embedding.embedding_table
    return build(factory(cpu, vocab, hidden, scheme), cpu)


def call(kernel: Any, inputs: list[Any], outputs: list[tuple[tuple[int, ...], str]]) -> list[Any]:
    """Run a kernel on numpy arrays; outputs start as garbage."""
    made = [np.full(shape, 77, dtype) for shape, dtype in outputs]
    tensors = [tvm.runtime.tensor(a) for a in [*inputs, *made]]
    kernel(*tensors)
    return [t.numpy() for t in tensors[len(inputs) :]]


def quantize_rows(x: Floats, group: int, cpu: isa.Isa, sums: int = 0) -> list[Any]:
    """codes i8 [n, K], scales f32 [n, K / group], sums i32 [n, K / sums] from the kernel; twice as
    wide where activations have two parts."""
    n, k = x.shape
    sums, wide = sums or group, k * cpu.activation_parts
    shapes = [((n, wide), "int8"), ((n, wide // group), "float32"), ((n, wide // sums), "int32")]
    return call(rows_kernel(k, group, sums, cpu), [x], shapes)


def rows_for(x: Floats, how: Scheme, cpu: isa.Isa, row: int | None = None) -> list[Any]:
    """The quantized rows in the form that a scheme's kernel reads, for matrices whose rows have
    `row` numbers: those of x, or as many as make it up side by side."""
    form = linear.row_form(how, row or x.shape[1])
    return quantize_rows(x, form.group, cpu, form.sums)


def dequantize_rows(codes: Any, scales: Any) -> npt.NDArray[np.float64]:
    """The numbers that the codes and scales of `quantize_rows` represent."""
    groups = scales.shape[1]
    values = codes.astype(np.float64).reshape(len(codes), groups, codes.shape[1] // groups)
    return (values * scales[:, :, None]).reshape(codes.shape)


def twin(x: Any, weight: Any, bias: Any | None) -> npt.NDArray[np.float64]:
    """y = x @ weight.T + bias in float64."""
    y = x.astype(np.float64) @ weight.astype(np.float64).T
    return y if bias is None else y + bias


def relative_error(y: Any, expected: Any) -> float:
    """Largest difference over the largest expected magnitude."""
    if not expected.size:
        return 0.0
    return float(np.abs(y - expected).max() / max(np.abs(expected).max(), 1e-30))
