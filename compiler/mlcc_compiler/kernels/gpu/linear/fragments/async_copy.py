"""Copies from memory to a workgroup's memory that threads do not wait for: `cp.async`.

A thread starts copies, closes them as a group (`commit`), and later waits for all groups but the
newest (`wait`). Then it sees its own copies, and after a barrier those of other threads.

Workgroup memory is addressed by number here, not through TVM's buffers: its pass that checks
barriers cannot tell the stages of a ring apart. So it is declared at launch (`shared.dyn`), which
also allows more than 48 KiB.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32

MOST_BYTES = 98 << 10
"""Of a workgroup's memory: RTX 30 and 40 have 99 KiB for one, of the GPUs with `mma` the fewest.
What is left is for declared memory."""

_ADDRESS = """
__device__ __forceinline__ unsigned mlcc_address(const void* cell) {
  unsigned found;
  asm volatile("{.reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide;}"
      : "=r"(found) : "l"(cell));  // volatile: not computed anew for each use
  return found;
}
"""
_COPY = """
__device__ __forceinline__ void mlcc_copy%(bytes)d(unsigned to, const void* from, int valid) {
  asm volatile("cp.async.%(cache)s.shared.global [%%0], [%%1], %(bytes)d, %%2;"
      :: "r"(to), "l"(from), "r"(valid) : "memory");
}
"""
_COPY_WORD = """
__device__ __forceinline__ void mlcc_copy_word(unsigned to, const void* from, int words) {
  asm volatile("{.reg .u64 at; mad.wide.s32 at, %2, 4, %1; "
      "cp.async.ca.shared.global [%0], [at], 4;}"
      :: "r"(to), "l"(from), "r"(words) : "memory");
}
"""
_COMMIT = """
__device__ __forceinline__ void mlcc_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
"""
_WAIT = """
__device__ __forceinline__ void mlcc_wait%(groups)d() {
  asm volatile("cp.async.wait_group %(groups)d;" ::: "memory");
}
"""
_LOAD = {
    1: """
__device__ __forceinline__ void mlcc_load1(unsigned& a, unsigned from) {
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(a) : "r"(from));
}
""",
    2: """
__device__ __forceinline__ void mlcc_load2(unsigned& a, unsigned& b, unsigned from) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(from));
}
""",
    4: """
__device__ __forceinline__ void mlcc_load4(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
    unsigned from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(from));
}
""",
}
_PLACE = """
__device__ __forceinline__ unsigned mlcc_place(const void* cell) {
  unsigned found;
  asm("{.reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide;}"
      : "=r"(found) : "l"(cell));
  return found;
}
"""
_TRANSPOSED = """
__device__ __forceinline__ void mlcc_transposed(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
    unsigned from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(from));
}
"""
_PUT = """
__device__ __forceinline__ void mlcc_put(unsigned to, unsigned word) {
  asm volatile("st.shared.u32 [%0], %1;" :: "r"(to), "r"(word) : "memory");
}
"""
_LAST = """
__device__ __forceinline__ int mlcc_last_of(int* counter, int count) {
  __threadfence();
  __syncthreads();
  int last = 0;
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    last = atomicAdd(counter, 1) == count - 1;
    if (last) *counter = 0;
  }
  last = __syncthreads_or(last);
  if (last) __threadfence();
  return last;
}
"""


def memory(size: int, align: int = 4) -> Expr:
    """The address of `size` bytes of workgroup memory, a multiple of `align`. All of a workgroup's
    such memory is one."""
    more = align if align > 4 else 0
    cells = T.alloc_buffer(((size + more) // 4,), "uint32", scope="shared.dyn")
    found = _call("mlcc_address", T.address_of(cells[0]), source=_ADDRESS, result="uint32")
    if more:
        found = T.bitwise_and(found + T.uint32(align - 1), T.uint32(0xFFFFFFFF - (align - 1)))
    return bind(found)


def copy(to: Expr, cell: Any, size: int, valid: Expr | None = None) -> None:
    """Start the copy of 4, 8 or 16 bytes from a cell of a tensor on. valid: how many of them, if
    not all; zeros take the place of the others."""
    source = _COPY % {"bytes": size, "cache": "cg" if size == 16 else "ca"}
    given = int32(size) if valid is None else valid
    _emit(f"mlcc_copy{size}", to, T.address_of(cell), given, source=source)


def copy_word(to: Expr, cell: Any, words: Expr) -> None:
    """Start the copy of the word `words` words behind a cell of a tensor. The address takes one
    instruction."""
    _emit("mlcc_copy_word", to, T.address_of(cell), int32(words), source=_COPY_WORD)


def commit() -> None:
    """Close this thread's copies since the last one as a group."""
    _emit("mlcc_commit", source=_COMMIT)


def wait(newest: int) -> None:
    """Wait for this thread's groups but the newest ones."""
    _emit(f"mlcc_wait{newest}", source=_WAIT % {"groups": newest})


def load(address: Expr, count: int) -> list[Expr]:
    """1, 2 or 4 words of workgroup memory."""
    words = Local(count, "uint32")
    found = [words[i] for i in range(count)]
    _emit(f"mlcc_load{count}", *found, address, source=_LOAD[count])
    return found


def address(cell: Any) -> Expr:
    """The address of a cell in workgroup memory."""
    return _call("mlcc_place", T.address_of(cell), source=_PLACE, result="uint32")


def transposed(address: Expr) -> list[Expr]:
    """Four matrices of 8 by 8 float16 in workgroup memory, each transposed, as words of a lane:
    lane 4 g + t has column g of rows 2 t and 2 t + 1. address: of row i % 8 of matrix i // 8, for
    lane i."""
    words = Local(4, "uint32")
    found = [words[i] for i in range(4)]
    _emit("mlcc_transposed", *found, address, source=_TRANSPOSED)
    return found


def put(address: Expr, word: Expr) -> None:
    """Store a word in workgroup memory."""
    _emit("mlcc_put", address, word, source=_PUT)


def is_last(counter: Any, count: Expr) -> Expr:
    """Whether this is the last of `count` workgroups to arrive at a counter, which must be 0 before
    the first and is again after the last. What they all wrote before is visible then. A barrier."""
    arguments = T.address_of(counter), int32(count)
    return bind(_call("mlcc_last_of", *arguments, source=_LAST, result="int32")) != 0


def _emit(name: str, *arguments: Any, source: str) -> None:
    T.evaluate(T.cuda.func_call(name, *arguments, source_code=source))


def _call(name: str, *arguments: Any, source: str, result: str) -> Expr:
    return T.cuda.func_call(name, *arguments, source_code=source, return_type=result)
