"""Instructions of NVIDIA GPUs (sm_80 and later) that TVM's CUDA generator prints as calls.

Each is a function of CUDA C++ with the instruction as its only line, printed before the kernels
that call it. The emulated device has the same functions in plain C++, by these names
(`tests/targets/cuda/emulation/kernels.h`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.workgroup import Local, int32

_MMA = """
__device__ __forceinline__ void mlcc_mma(float& d0, float& d1, float& d2, float& d3, float c0,
    float c1, float c2, float c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
    unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
      "{%8, %9, %10, %11}, {%12, %13}, {%4, %5, %6, %7};"
      : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3)
      : "f"(c0), "f"(c1), "f"(c2), "f"(c3), "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
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

_PERMUTED = """
__device__ __forceinline__ unsigned mlcc_permuted(unsigned low, unsigned high, unsigned selector) {
  unsigned found;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(found) : "r"(low), "r"(high), "r"(selector));
  return found;
}
"""

_E4M3 = """
__device__ __forceinline__ unsigned mlcc_e4m3_SIDE(unsigned word) {
  unsigned found;
#if __CUDA_ARCH__ >= 890
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, SIDE; }"
      : "=r"(found) : "r"(word));
#else
  unsigned wide = __byte_perm(word, 0, SELECTOR);
  unsigned pair = wide & 0x80008000u | wide >> 1 & 0x3f803f80u;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(found) : "r"(pair), "r"(0x5c005c00u));
#endif
  return found;
}
"""
"""Before sm_89 the bits are moved to a float16's, which is 2**-8 times the number."""
_SELECTORS = {"low": "0x1404", "high": "0x3424"}

_MULTIPLY_ADD = """
__device__ __forceinline__ unsigned mlcc_multiply_add(unsigned a, unsigned b, unsigned c) {
  unsigned found;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(found) : "r"(a), "r"(b), "r"(c));
  return found;
}
"""

_POWER = """
__device__ __forceinline__ float mlcc_power(float x) {
  float found;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(x));
  return found;
}
"""

_WORDS = """
__device__ __forceinline__ void mlcc_words(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
    const void* from) {
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(from));
}
"""

_KEPT = """
__device__ __forceinline__ int mlcc_kept(int number) {
  int same;
  asm volatile("mov.b32 %0, %1;" : "=r"(same) : "r"(number));
  return same;
}
"""


def workgroups(count: int) -> Any:
    """Let a thread of a kernel have as many registers as allow that many workgroups on a
    multiprocessor. Without a bound ptxas gives some kernels 32 and spills the rest."""
    return T.attr(T.int32(0), "tirx.launch_bounds_min_blocks_per_sm", count)


def multiply(
    sums: Sequence[Expr], start: Sequence[Expr], a: Sequence[Expr], b: Sequence[Expr]
) -> None:
    """Emit sums = start + a @ b, the parts of a lane of `mma.m16n8k16`: four registers.

    a: pairs of float16 of rows (g, g + 8, g, g + 8) of 16, b: of column g of 8, for lane 4 g + t.
    Sums: rows g, g, g + 8, g + 8 and columns 2 t, 2 t + 1, 2 t, 2 t + 1.
    """
    T.evaluate(T.cuda.func_call("mlcc_mma", *sums, *start, *a, *b, source_code=_MMA))


def multiply_code() -> str:
    """The C++ of `multiply`."""
    return _MMA


def halves(low: Expr, high: Expr) -> Expr:
    """Two float32 as a pair of float16 in a u32, rounded and clamped to their range."""
    return T.cuda.func_call("mlcc_halves", low, high, source_code=_HALVES, return_type="uint32")


def masked(word: Expr, mask: int, bits: int | Expr) -> Expr:
    """(word & mask) ^ bits, as one instruction. In C++ two come of it: of two constants one must be
    kept in a register."""
    arguments = word, T.uint32(mask), T.uint32(bits) if isinstance(bits, int) else bits
    return T.cuda.func_call("mlcc_masked", *arguments, source_code=_MASKED, return_type="uint32")


def permuted(low: Expr, high: Expr, selector: int | Expr) -> Expr:
    """Four bytes of eight, chosen by the four lowest nibbles of the selector: `prmt`. A nibble with
    its top bit set yields the sign of its byte, eight times."""
    arguments = low, high, T.uint32(selector) if isinstance(selector, int) else selector
    return T.cuda.func_call(
        "mlcc_permuted", *arguments, source_code=_PERMUTED, return_type="uint32"
    )


def halves_of_fp8(word: Expr, side: str) -> Expr:
    """Two 8-bit floats (e4m3), the "low" or the "high" ones of a word, as a pair of float16."""
    name, code = f"mlcc_e4m3_{side}", e4m3_code(side)
    return T.cuda.func_call(name, word, source_code=code, return_type="uint32")


def e4m3_code(side: str) -> str:
    """The C++ of `halves_of_fp8`."""
    return _E4M3.replace("SIDE", side).replace("SELECTOR", _SELECTORS[side])


def multiply_add(a: Expr, b: Expr, c: Expr) -> Expr:
    """a * b + c of pairs of float16, each rounded once."""
    return T.cuda.func_call(
        "mlcc_multiply_add", a, b, c, source_code=_MULTIPLY_ADD, return_type="uint32"
    )


def power(x: Expr) -> Expr:
    """2 ** x of a float32, to within 2**-22, one instruction."""
    return T.cuda.func_call("mlcc_power", x, source_code=_POWER, return_type="float32")


def kept(number: Expr) -> Expr:
    """An int32 in a register of its own. What loops use again and again the compiler would compute
    anew each time, to save registers."""
    found = Local(1, "int32")
    found[0] = T.cuda.func_call("mlcc_kept", number, source_code=_KEPT, return_type="int32")
    return found[0]


def words(cell: Any) -> list[Expr]:
    """Emit the load of four words of memory, here and not earlier: the compiler would load those of
    later steps too, in registers that it has not."""
    found = Local(4, "uint32")
    cells = [found[i] for i in range(4)]
    T.evaluate(T.cuda.func_call("mlcc_words", *cells, T.address_of(cell), source_code=_WORDS))
    return cells


def held(words: Sequence[int], count: Expr) -> list[Expr]:
    """Up to eight constants that stay in registers of their own. count: a number of rows.

    The compiler would keep them apart, equal ones once, and move them to registers before every
    instruction that needs them there. It does not know that a number of rows has no high bits.
    """
    found = Local(len(words), "uint32")
    for i, word in enumerate(words):
        nothing = T.reinterpret("uint32", int32(count)) >> T.uint32(31 - i)
        found[i] = T.bitwise_xor(T.uint32(word), nothing)
    return [found[i] for i in range(len(words))]
