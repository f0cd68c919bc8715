"""Instructions of warp groups, on sm_90 alone: `wgmma` multiplies while its warps go on.

A warp group is four neighbouring warps. `multiply` starts a product of 64 rows of W in registers,
16 of each warp as `mma.m16n8k16` takes them, and 128 rows of x in workgroup memory. Products
started since the last `commit` are a group; `wait` waits for all groups but the newest, and until
then neither the sums nor W's registers nor x may change.

x lies as `wgmma` reads it by a descriptor: rows of 64 float16, 128 bytes each, from an address that
1,024 divides; the number of a row, modulo 8, is xored into that of each 16 bytes ("128-byte
swizzle").
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr

ROWS = 128
"""Of x, in a product."""
ROW_BYTES = 128
ATOM = 8 * ROW_BYTES
"""Bytes after which the places repeat; x begins at a multiple."""
MOST_BYTES = 224 << 10
"""Of a workgroup's memory: of 227 KiB that a workgroup may have."""
SUMS = ROWS // 2
"""Of a lane."""
FP8_ROWS = 64
"""Of x, in a product of 8-bit floats."""
FP8_SUMS = FP8_ROWS // 2


def _multiply_source(name: str, rows: int, depth: int, kind: str, more: str) -> str:
    """CUDA C++ of a product: sums, four words of W, and the address of x. more: whether it is added
    to the sums, and the signs of both sides."""
    count = rows // 2
    sums = ", ".join(f"float& d{i}" for i in range(count))
    operands = ", ".join(f'"+f"(d{i})' for i in range(count))
    places = ", ".join(f"%{i}" for i in range(count))
    words = ", ".join(f"%{count + i}" for i in range(4))
    # stride of 8 rows: 1,024 bytes; bit 62: the swizzle of 128 bytes
    return f"""
__device__ __forceinline__ void mlcc_warp_group_{name}({sums}, unsigned a0, unsigned a1,
    unsigned a2, unsigned a3, unsigned at) {{
  unsigned long long x = 0x4000000000000000ull | {ATOM >> 4}ull << 32 | 1ull << 16 |
      (at & 0x3FFFF) >> 4;
  asm volatile("{{wgmma.mma_async.sync.aligned.m64n{rows}k{depth}.f32.{kind}.{kind} {{{places}}}, "
      "{{{words}}}, %{count + 4}, {more};}}"
      : {operands}
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(x));
}}
"""


_MULTIPLY = _multiply_source("multiply", ROWS, 16, "f16", "1, 1, 1, 0")
_FP8 = {
    first: _multiply_source(f"eights{int(first)}", FP8_ROWS, 32, "e4m3", f"{int(not first)}, 1, 1")
    for first in (False, True)
}


def _wait_source(newest: int) -> str:
    """CUDA C++ of `wait_for`: the sums are written by it, as the compiler sees it."""
    sums = ", ".join(f"float& d{i}" for i in range(FP8_SUMS))
    operands = ", ".join(f'"+f"(d{i})' for i in range(FP8_SUMS))
    return f"""
__device__ __forceinline__ void mlcc_warp_group_wait_for{newest}({sums}) {{
  asm volatile("wgmma.wait_group.sync.aligned {newest};" : {operands} :: "memory");
}}
"""


_WAIT = [_wait_source(newest) for newest in (0, 1)]
_PLAIN = """
__device__ __forceinline__ void mlcc_warp_group_%(name)s() {
  asm volatile("%(text)s" ::: "memory");
}
"""


def multiply(sums: Sequence[Expr], a: Sequence[Expr], at: Expr) -> None:
    """Start sums += x @ a for 16 columns, whose x begins at address `at`. sums: 4 for each 8 rows
    of x; they and a (four words) as in `mma.multiply`."""
    arguments = *sums, *a, at
    T.evaluate(T.cuda.func_call("mlcc_warp_group_multiply", *arguments, source_code=_MULTIPLY))


def multiply_fp8(sums: Sequence[Expr], a: Sequence[Expr], at: Expr, *, first: bool) -> None:
    """Start sums = x @ a, or += unless it is the first, for 32 columns of 8-bit floats (e4m3): a
    and x have four a word, of lane t the words t and t + 4 of x; x has `FP8_ROWS`."""
    arguments, name = (*sums, *a, at), f"mlcc_warp_group_eights{int(first)}"
    T.evaluate(T.cuda.func_call(name, *arguments, source_code=_FP8[first]))


def wait_for(sums: Sequence[Expr], newest: int) -> None:
    """Wait for this warp's groups but the newest ones, 0 or 1, for products of 8-bit floats whose
    sums are read next."""
    name = f"mlcc_warp_group_wait_for{newest}"
    T.evaluate(T.cuda.func_call(name, *sums, source_code=_WAIT[newest]))


def begin() -> None:
    """What was written to registers is seen by the products that follow."""
    _emit("begin", "wgmma.fence.sync.aligned;")


def commit() -> None:
    """Close the products since the last one as a group."""
    _emit("commit", "wgmma.commit_group.sync.aligned;")


def wait(newest: int) -> None:
    """Wait for this warp's groups but the newest ones: 0 or 1."""
    _emit(f"wait{newest}", f"wgmma.wait_group.sync.aligned {newest};")


def publish() -> None:
    """What this thread wrote to workgroup memory is seen by products after the next barrier."""
    _emit("publish", "fence.proxy.async.shared::cta;")


def _emit(name: str, text: str) -> None:
    source = _PLAIN % {"name": name, "text": text}
    T.evaluate(T.cuda.func_call(f"mlcc_warp_group_{name}", source_code=source))
