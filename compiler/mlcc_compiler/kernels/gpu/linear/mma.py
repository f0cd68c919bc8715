"""Instructions of NVIDIA GPUs (sm_80 and later) that TVM's CUDA generator prints as calls.

Each is a function of CUDA C++ with the instruction as its only line, printed before the kernels
that call it. The emulated device has the same functions in plain C++, by these names
(`tests/targets/cuda/emulation/kernels.h`).
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.workgroup import Local

_MMA = """
__device__ __forceinline__ void mlcc_mma(float& d0, float& d1, float& d2, float& d3, unsigned a0,
    unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
"""
_HALVES = """
__device__ __forceinline__ unsigned mlcc_halves(float low, float high) {
  unsigned pair;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
"""

_MASKED = """
__device__ __forceinline__ unsigned mlcc_masked(unsigned word, unsigned mask, unsigned bits) {
  unsigned found;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(found) : "r"(word), "r"(mask), "r"(bits));
  return found;
}
"""


def multiply(sums: Local, first: int, a: Sequence[Expr], b: Sequence[Expr]) -> None:
    """Emit sums[first : first + 4] += a @ b, the parts of a lane of `mma.m16n8k16`.

    a: pairs of float16 of rows (g, g + 8, g, g + 8) of 16, b: of column g of 8, for lane 4 g + t.
    Sums: rows g, g, g + 8, g + 8 and columns 2 t, 2 t + 1, 2 t, 2 t + 1.
    """
    cells = [sums[first + i] for i in range(4)]
    T.evaluate(T.cuda.func_call("mlcc_mma", *cells, *a, *b, source_code=_MMA))


def halves(low: Expr, high: Expr) -> Expr:
    """Two float32 as a pair of float16 in a u32, rounded and clamped to their range."""
    return T.cuda.func_call("mlcc_halves", low, high, source_code=_HALVES, return_type="uint32")


def masked(word: Expr, mask: int, bits: int) -> Expr:
    """(word & mask) ^ bits, as one instruction. In C++ two come of it: of two constants one must be
    kept in a register."""
    arguments = word, T.uint32(mask), T.uint32(bits)
    return T.cuda.func_call("mlcc_masked", *arguments, source_code=_MASKED, return_type="uint32")
