"""Reads a tensor of global memory four neighbours at a time, as one vec4.

TVM writes a vectorized load for WGSL as four loads of one element each, since the argument is an
array of elements. Its pointer, reinterpreted before the launch, makes it an array of vectors;
shapes that TVM checks and the tensors passed stay the same. Generators of other languages emit
vector loads by themselves.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import int32

FOUR = 4


class Vec4Buffer:
    """A buffer [n, K] of whole vec4s; created before the launch whose kernel reads it, which then
    must not read the buffer itself."""

    def __init__(self, buffer: Any) -> None:
        self.shape, self.dtype = buffer.shape, buffer.dtype
        self.row = int(buffer.shape[1]) // FOUR
        kind = f"{buffer.dtype}x{FOUR}"
        pointer = T.bind(T.reinterpret(T.handle(kind, "global").ty, buffer.data))
        self.whole = T.decl_buffer((buffer.shape[0] * self.row,), kind, data=pointer)

    def load4(self, row: Expr, first: Expr) -> Expr:
        """The vector of a row that starts at `first`, a multiple of four."""
        return self.whole[int32(row) * self.row + tirx.floordiv(first, FOUR)]


def vec4_if_useful(gpu: Gpu, buffer: Any, unit: int) -> Any:
    """The buffer or buffer view, as vec4 where the device's language is WGSL and rows are whole
    units of `unit` elements."""
    if gpu.narrow_types or int(buffer.shape[1]) % unit:
        return buffer
    return buffer.vec4() if hasattr(buffer, "vec4") else Vec4Buffer(buffer)
