"""2 ** x, a sigmoid, and a test of all lanes, in few instructions of AVX-512, for 16 float32.

VREDUCEPS takes the whole part off and VSCALEFPS multiplies by a power of two, so 2 ** x is seven
instructions where `exp2_falling` is eleven. VRCP14PS takes 2 cycles where a division takes 16.
Rounded for bf16, not for float32. Kernels call functions given as LLVM IR text (`AVX512_IR`), which
are inlined. For CPUs with AVX512DQ only.
"""

from __future__ import annotations

from struct import pack, unpack
from typing import Any

from mlcc_compiler.ir._tvm import T

Expr = Any

_EXP2 = (0.07706719743373996, 0.22764482191479934, 0.6951168245278163, 1.0)
"""Minimax of relative error on 0 to 1, 9e-5; exact at 0."""
_KIND = "<16 x float>"


def _splat(value: float) -> str:
    """A vector constant in LLVM IR: the hexadecimal digits are those of a double."""
    (rounded,) = unpack("f", pack("f", value))
    (bits,) = unpack("Q", pack("d", rounded))
    return f"splat (float 0x{bits:016X})"


def _horner() -> str:
    """%p3 = the polynomial of %f."""
    lines = []
    for i, c in enumerate(_EXP2[1:]):
        factor = f"%p{i}" if i else _splat(_EXP2[0])
        lines.append(
            f"  %p{i + 1} = call {_KIND} @llvm.fma.v16f32({_KIND} %f, {_KIND} {factor}, "
            f"{_KIND} {_splat(c)})"
        )
    return "\n".join(lines)


_FLOOR = 9  # VREDUCEPS: less the largest whole number below; no exception for inexact ones
_REDUCE = "llvm.x86.avx512.mask.reduce.ps.512"
_SCALE = "llvm.x86.avx512.mask.scalef.ps.512"
_RECIPROCAL = "llvm.x86.avx512.rcp14.ps.512"
_MOST = 126.0
"""VSCALEFPS takes hundreds of cycles for a result that is not normal. Lanes that are masked out do
not."""
AVX512_IR = f"""
define linkonce_odr hidden {_KIND} @mlcc_exp2({_KIND} %x) alwaysinline {{
  %f = call {_KIND} @{_REDUCE}({_KIND} %x, i32 {_FLOOR}, {_KIND} undef, i16 -1, i32 4)
{_horner()}
  %normal = fcmp uge {_KIND} %x, {_splat(-_MOST)}
  %kept = bitcast <16 x i1> %normal to i16
  %y = call {_KIND} @{_SCALE}({_KIND} %p3, {_KIND} %x, {_KIND} zeroinitializer, i16 %kept, i32 4)
  ret {_KIND} %y
}}
define linkonce_odr hidden {_KIND} @mlcc_sigmoid({_KIND} %x) alwaysinline {{
  %n = fmul {_KIND} %x, {_splat(-1.4426950408889634)}
  %above = fcmp ogt {_KIND} %n, {_splat(_MOST)}
  %m = select <16 x i1> %above, {_KIND} {_splat(_MOST)}, {_KIND} %n
  %e = call {_KIND} @mlcc_exp2({_KIND} %m)
  %d = fadd {_KIND} %e, {_splat(1.0)}
  %y = call {_KIND} @{_RECIPROCAL}({_KIND} %d, {_KIND} undef, i16 -1)
  ret {_KIND} %y
}}
define linkonce_odr hidden i32 @mlcc_any_above({_KIND} %x, float %limit) alwaysinline {{
  %one = insertelement {_KIND} poison, float %limit, i64 0
  %all = shufflevector {_KIND} %one, {_KIND} poison, <16 x i32> zeroinitializer
  %above = fcmp ogt {_KIND} %x, %all
  %bits = bitcast <16 x i1> %above to i16
  %found = zext i16 %bits to i32
  ret i32 %found
}}
declare {_KIND} @llvm.fma.v16f32({_KIND}, {_KIND}, {_KIND})
declare {_KIND} @{_REDUCE}({_KIND}, i32 immarg, {_KIND}, i16, i32 immarg)
declare {_KIND} @{_SCALE}({_KIND}, {_KIND}, {_KIND}, i16, i32 immarg)
declare {_KIND} @{_RECIPROCAL}({_KIND}, {_KIND}, i16)
"""
"""LLVM IR of the functions below."""


def exp2(x: Expr) -> Expr:
    """2**x of f32x16 within 9e-5; 0 below -126, NaN of NaN."""
    return T.call_extern("float32x16", "mlcc_exp2", x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x) of f32x16 within a relative 1.6e-4, or 1.2e-38; NaN of NaN."""
    return T.call_extern("float32x16", "mlcc_sigmoid", x)


def any_above(x: Expr, limit: float) -> Expr:
    """Not 0 if any lane of f32x16 is above the limit."""
    return T.call_extern("int32", "mlcc_any_above", x, T.float32(limit))
