"""bf16 pairs: two bf16 numbers in each lane of 32 bits, their products, and conversion from
float32.

Kernels import functions as LLVM IR text: TVM widens all bf16 to float32 before it writes LLVM, so
none of its calls could have bf16 operands. Each function is inlined. For `has_bf16` CPUs only. The
instructions round to nearest even, once a pair of products, and flush subnormals to zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlcc_compiler.ir._tvm import B, T

Expr = Any

DOT2, PAIR, HALVES = "mlcc_dot2_bf16", "mlcc_pair_bf16", "mlcc_halves_bf16"

_DPBF16 = "llvm.x86.avx512bf16.dpbf16ps.512"
DOT2_IR = f"""
define linkonce_odr hidden <16 x float> @{DOT2}(<16 x float> %acc, <32 x i16> %a, <32 x i16> %b)
    alwaysinline {{
  %x = bitcast <32 x i16> %a to <32 x bfloat>
  %y = bitcast <32 x i16> %b to <32 x bfloat>
  %sum = call <16 x float> @{_DPBF16}(<16 x float> %acc, <32 x bfloat> %x, <32 x bfloat> %y)
  ret <16 x float> %sum
}}
declare <16 x float> @{_DPBF16}(<16 x float>, <32 x bfloat>, <32 x bfloat>)
"""
"""LLVM IR of `dot2`."""

_CVT2 = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
PAIR_IR = f"""
define linkonce_odr hidden <16 x i32> @{HALVES}(<16 x float> %a, <16 x float> %b) alwaysinline {{
  %both = call <32 x bfloat> @{_CVT2}(<16 x float> %b, <16 x float> %a)
  %words = bitcast <32 x bfloat> %both to <16 x i32>
  ret <16 x i32> %words
}}
define linkonce_odr hidden <16 x i32> @{PAIR}(<16 x float> %a, <16 x float> %b) alwaysinline {{
  %both = call <32 x bfloat> @{_CVT2}(<16 x float> %b, <16 x float> %a)
  %turns = shufflevector <32 x bfloat> %both, <32 x bfloat> poison, <32 x i32>
    <{", ".join(f"i32 {i}, i32 {i + 16}" for i in range(16))}>
  %pairs = bitcast <32 x bfloat> %turns to <16 x i32>
  ret <16 x i32> %pairs
}}
declare <32 x bfloat> @{_CVT2}(<16 x float>, <16 x float>)
"""
"""LLVM IR of `pair` and `halves`."""


@contextmanager
def imported(text: str) -> Iterator[None]:
    """Inside, functions of this LLVM IR text may be called."""
    with B.attr(T.int32(0), "pragma_import_llvm", text):
        yield


def dot2(acc: Expr, a: Expr, b: Expr) -> Expr:
    """acc f32x16 + the sums of two products of bf16 in each lane; a and b are bits, u16x32."""
    return T.call_extern("float32x16", DOT2, acc, a, b)


def pair(first: Expr, second: Expr) -> Expr:
    """i32x16: the nearest bf16 of both numbers, f32x16, per lane, the first in the low half."""
    return T.call_extern("int32x16", PAIR, first, second)


def halves(first: Expr, second: Expr) -> Expr:
    """i32x16: 32 numbers as the nearest bf16, those of `first` before those of `second`."""
    return T.call_extern("int32x16", HALVES, first, second)
