"""Building blocks of the host kernels: vectors of floats, transposed groups, and compilation.

Weights are [M, group], as they lie in a matrix, M a whole number of vectors. A vector holds as many
groups as it has lanes, whose weights are transposed for it and stay in the first-level cache while
candidates are tried. Bit-identical to numpy only where products and sums are not fused: for AVX2
vectors, `build` compiles for a CPU without fused instructions; AVX-512 always has them, so there
each `product` gets an explicit rounding mode, which keeps it separate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from mlcc.util.machine import cpu_features, machine
from mlcc_compiler.ir._tvm import B, IRBuilder, T, tvm, tvm_ffi
from mlcc_compiler.kernels.frame import Expr, PrimFunc
from mlcc_compiler.kernels.tir_pipeline import CPU_PIPELINE

_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
LANES = 16 if cpu_features().issuperset(_AVX512) else 8
"""Groups per vector on this machine."""
FLOATS = f"float32x{LANES}"
_NEAREST = 8
"""AVX-512's explicit rounding mode: to nearest, without exceptions."""
_TO_INTEGER = 12582912.0
"""1.5 * 2**23: added to a float, it leaves the nearest integer in the lowest bits."""


def runs_here() -> bool:
    """Whether this machine has vectors without forced fusion. On others numpy does the work."""
    return machine() == "x86_64" and "avx2" in cpu_features()


@cache
def build(factory: Callable[..., PrimFunc], *arguments: Any) -> Callable[..., None]:
    """Compile a kernel; it takes numpy arrays aligned to 64 bytes."""
    features = ["+avx2", "-fma"] if LANES == 8 else [f"+{name}" for name in _AVX512]
    target = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64", "mattr": features})
    kernel = factory(*arguments).with_attr("global_symbol", "main")
    # Kept: a function does not keep the module that it came from.
    compiled = tvm.compile(tvm.IRModule({"main": kernel}), target, tir_pipeline=CPU_PIPELINE)
    main = compiled["main"]

    def call(*arrays: Any, module: Any = compiled) -> None:
        main(*(tvm_ffi.from_dlpack(array, require_alignment=64) for array in arrays))

    return call


class Vectors:
    """`count` vectors of floats in an aligned scratch buffer."""

    def __init__(self, count: int) -> None:
        self.buffer = B.alloc_buffer((count * LANES,), "float32")

    def __getitem__(self, i: Expr) -> Expr:
        return self.buffer.vload([i * LANES], FLOATS)

    def __setitem__(self, i: Expr, value: Expr) -> None:
        B.buffer_store(self.buffer, value, [T.Ramp(i * LANES, 1, LANES)])


def spread(value: float | np.floating[Any]) -> Expr:
    return T.Broadcast(T.float32(float(np.float32(value))), LANES)


def product(a: Expr, b: Expr) -> Expr:
    """a * b, rounded by itself even if it is an operand of a sum or difference."""
    if LANES == 8:
        return a * b
    name = T.llvm_lookup_intrinsic_id("llvm.x86.avx512.mul.ps.512")
    return T.call_llvm_pure_intrin(FLOATS, name, a, b, T.int32(_NEAREST))


def looked_up(table: Sequence[float], place: Expr) -> Expr | None:
    """table[place], with places rounded and clipped here; None: no instruction for it."""
    if LANES == 8 or len(table) > 2 * LANES:
        return None
    index = T.reinterpret(f"int32x{LANES}", place + spread(_TO_INTEGER))
    values = [T.float32(float(value)) for value in table]
    values += [T.float32(0)] * (-len(values) % LANES)
    vectors = [
        T.Shuffle(values[i : i + LANES], list(range(LANES))) for i in range(0, len(values), LANES)
    ]
    name = "permvar.sf" if len(vectors) == 1 else "vpermi2var.ps"
    arguments = [vectors[0], index, *vectors[1:]]
    found = T.llvm_lookup_intrinsic_id(f"llvm.x86.avx512.{name}.512")
    return T.call_llvm_pure_intrin(FLOATS, found, *arguments)


def intrinsic(name: str, value: Expr) -> Expr:
    return T.call_llvm_pure_intrin(FLOATS, T.llvm_lookup_intrinsic_id(name), value)


def rounded(value: Expr) -> Expr:
    """Round to the nearest integer, halves to even, as np.rint."""
    return intrinsic("llvm.rint", value)


ANY = None
"""Any number of rows."""


def frame(inputs: Sequence[tuple[Any, int]], outputs: Sequence[int], body: Any) -> PrimFunc:
    """body(arrays, m) for every vector of groups: weights [M, group], then other inputs, each of
    (rows, columns), and outputs [rows, M]; all floats."""
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=False):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True})
        handles = [B.arg(f"a{i}", T.handle()) for i in range(len(inputs) + len(outputs))]
        m = T.int64()
        (_, group), *others = inputs
        shapes = [(m, group)]
        shapes += [(T.int64() if n is ANY else n, columns) for n, columns in others]
        shapes += [(n, m) for n in outputs]
        arrays = [
            B.match_buffer(h, shape, "float32") for h, shape in zip(handles, shapes, strict=True)
        ]
        with B.serial(m // LANES) as vector:
            body(arrays, B.bind(vector * LANES))
    return builder.get()


def turned(x: Expr, group: int, m: Expr) -> Vectors:
    """Groups m, m + 1, ... (rows) transposed: vector j has their weights j."""
    found = Vectors(group)
    with B.serial(group // LANES) as block:
        rows = [B.bind(x.vload([m + i, block * LANES], FLOATS)) for i in range(LANES)]
        for i, column in enumerate(_transposed(rows)):
            found[block * LANES + i] = column
    return found


def _transposed(rows: list[Expr]) -> list[Expr]:
    """Transpose a square of vectors: exchange blocks of 1, 2, 4 ... beside the diagonal."""
    for step in (step for step in (1, 2, 4, 8) if step < LANES):
        for i in (i for i in range(LANES) if not i & step):
            one, other = rows[i], rows[i + step]
            lanes = range(LANES)
            low = [lane + LANES - step if lane & step else lane for lane in lanes]
            high = [lane + LANES if lane & step else lane + step for lane in lanes]
            rows[i] = B.bind(T.Shuffle([one, other], low))
            rows[i + step] = B.bind(T.Shuffle([one, other], high))
    return rows
