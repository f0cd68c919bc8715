"""Alignment of a function's stack, for vectors that leave the registers.

The ABI aligns stacks to 16 bytes. LLVM aligns a function's stack further if a variable there needs
it, but not for registers that it spills: it has allocated registers by then. Each wide vector may
then cross a cache line, or none, depending on the caller; products with AVX2 took up to 1.7 times
as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlcc_compiler.ir._tvm import B, T

ALIGN_STACK = "mlcc_align_stack"
_IR = f"""
define linkonce_odr hidden void @{ALIGN_STACK}() alwaysinline {{
  %vector = alloca [64 x i8], align 64
  call void asm sideeffect "", "r"(ptr %vector)
  ret void
}}
"""


@contextmanager
def aligned_stack(vector_bits: int) -> Iterator[None]:
    """Inside, spilled vectors are aligned, if they are wider than the ABI aligns for."""
    if vector_bits <= 128:
        yield
        return
    with B.attr(T.int32(0), "pragma_import_llvm", _IR):
        B.evaluate(T.call_extern("void", ALIGN_STACK))
        yield
