"""Instructions for products of 8-bit floats (e4m3), as `mma.py` has those of float16.

`mma.m16n8k32` multiplies them from sm_89 on. In the same library's code for older GPUs they become
float16, exactly, and two `mma.m16n8k16` multiply them.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.linear.fragments import mma

_FUNCTION = """
__device__ __forceinline__ void mlcc_eights_multiply(float& d0, float& d1, float& d2, float& d3,
    float c0, float c1, float c2, float c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
    unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 890
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, "
      "{%8, %9, %10, %11}, {%12, %13}, {%4, %5, %6, %7};"
      : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
      : "f"(c0), "f"(c1), "f"(c2), "f"(c3), "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
  mlcc_halves_multiply(d0, d1, d2, d3, c0, c1, c2, c3, mlcc_halves_low(a0), mlcc_halves_low(a1),
      mlcc_halves_high(a0), mlcc_halves_high(a1), mlcc_halves_low(b0), mlcc_halves_high(b0));
  mlcc_halves_multiply(d0, d1, d2, d3, d0, d1, d2, d3, mlcc_halves_low(a2), mlcc_halves_low(a3),
      mlcc_halves_high(a2), mlcc_halves_high(a3), mlcc_halves_low(b1), mlcc_halves_high(b1));
#endif
}
"""
_ROUNDED = """
__device__ __forceinline__ unsigned mlcc_eights_one(float x) {
  float size = fminf(fabsf(x), 448.0f);
  unsigned bits = __float_as_uint(size);
  unsigned normal = ((bits + 0x7FFFFu + (bits >> 20 & 1u)) >> 20) - 960u;
  unsigned code = size < 0.015625f ? static_cast<unsigned>(__float2int_rn(size * 512.0f)) : normal;
  return code | (__float_as_uint(x) >> 24 & 128u);
}
__device__ __forceinline__ unsigned mlcc_eights(float a, float b, float c, float d) {
  unsigned found;
#if __CUDA_ARCH__ >= 890
  asm("{.reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; "
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high};}"
      : "=r"(found) : "f"(a), "f"(b), "f"(c), "f"(d));
#else
  found = mlcc_eights_one(a) | mlcc_eights_one(b) << 8 | mlcc_eights_one(c) << 16 |
      mlcc_eights_one(d) << 24;
#endif
  return found;
}
"""
"""Before sm_89: to the nearest, ties to even; below 2**-6 numbers are multiples of 2**-9."""


def multiply_code() -> str:
    """The C++ of `multiply`."""
    halves = mma.multiply_code().replace("mlcc_mma", "mlcc_halves_multiply")
    moved = [mma.e4m3_code(side).replace("mlcc_e4m3", "mlcc_halves") for side in ("low", "high")]
    return "".join((halves, *moved, _FUNCTION))


def rounded_code() -> str:
    """The C++ of `rounded`."""
    return _ROUNDED


def multiply(
    sums: Sequence[Expr], start: Sequence[Expr], a: Sequence[Expr], b: Sequence[Expr]
) -> None:
    """Emit sums = start + a @ b, the parts of a lane of `mma.m16n8k32`.

    a: four 8-bit floats a word, of rows (g, g + 8, g, g + 8) of 16, b: of column g of 8, for lane
    4 g + t. Sums as in `mma.multiply`.
    """
    arguments = *sums, *start, *a, *b
    T.evaluate(T.cuda.func_call("mlcc_eights_multiply", *arguments, source_code=multiply_code()))


def rounded(four: Sequence[Expr]) -> Expr:
    """Four float32 as 8-bit floats in a u32, rounded to the nearest and clamped to +-448."""
    return T.cuda.func_call("mlcc_eights", *four, source_code=_ROUNDED, return_type="uint32")
