"""Matrices of a subgroup: the half-precision matrix instructions of a device, sums in float32.

Both kinds are intrinsics of TVM that its generators print: `wmma` as nvcuda::wmma (CUDA C++, sm_70
and later), `simdgroup` as simdgroup_matrix (MSL 2.3, Apple 7 and later). The instructions are used
directly rather than by a schedule that tensorizes a product of float16 matrices: dequantization,
odd sizes and float32 activations would have to be rediscovered from it, where here they are lines
of a loop.
"""

from __future__ import annotations

from typing import Any, Protocol

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.workgroup import real


class MatrixUnit(Protocol):
    """Instructions over square matrices, `edge` elements wide, that a subgroup holds together.

    Places in workgroup memory are offsets of a matrix's first element, rows `stride` elements
    apart; `transposed`: columns are.
    """

    edge: int
    vector: int
    """Largest vector of float16 in the device's language."""

    def inputs(self, side: str, count: int) -> Any:
        """`count` float16 matrices for the left ("a") or the right ("b") side of products."""

    def sums(self, count: int) -> Any:
        """`count` float32 matrices of zeros."""

    def load(
        self,
        side: str,
        matrices: Any,
        index: int,
        source: Any,
        at: Expr,
        stride: int,
        *,
        transposed: bool = False,
    ) -> None:
        """Emit a load from workgroup memory; one set of matrices is always loaded alike."""

    def multiply(self, sums: Any, index: int, a: Any, i: int, b: Any, j: int) -> None:
        """Emit sums[index] += a[i] @ b[j]."""

    def store(
        self, sums: Any, index: int, to: Any, at: Expr, stride: int, *, transposed: bool = False
    ) -> None:
        """Emit a store into workgroup memory."""


class Wmma:
    """Matrices of 16 x 16 of a warp."""

    edge, vector = 16, 8

    def inputs(self, side: str, count: int) -> Any:
        """See MatrixUnit."""
        return self._matrices(f"matrix_{side}", count, "float16")

    def sums(self, count: int) -> Any:
        """See MatrixUnit."""
        made = self._matrices("accumulator", count, "float32")
        for i in range(count):
            T.evaluate(T.tvm_fill_fragment(made.data, *self._shape, i, real(0)))
        return made

    def load(
        self,
        side: str,
        matrices: Any,
        index: int,
        source: Any,
        at: Expr,
        stride: int,
        *,
        transposed: bool = False,
    ) -> None:
        """See MatrixUnit."""
        start = T.tvm_access_ptr("float16", source.data, at, self.edge * stride, 1)
        target, layout = (matrices.data, *self._shape, index), _LAYOUTS[transposed]
        T.evaluate(T.tvm_load_matrix_sync(*target, start, stride, layout))

    def multiply(self, sums: Any, index: int, a: Any, i: int, b: Any, j: int) -> None:
        """See MatrixUnit."""
        total = sums.data, index
        T.evaluate(T.tvm_mma_sync(*total, a.data, i, b.data, j, *total))

    def store(
        self, sums: Any, index: int, to: Any, at: Expr, stride: int, *, transposed: bool = False
    ) -> None:
        """See MatrixUnit."""
        start = T.tvm_access_ptr("float32", to.data, at, self.edge * stride, 2)
        source, layout = (sums.data, *self._shape, index), _LAYOUTS[transposed]
        T.evaluate(T.tvm_store_matrix_sync(*source, start, stride, layout))

    @property
    def _shape(self) -> tuple[int, int, int]:
        return self.edge, self.edge, self.edge

    def _matrices(self, kind: str, count: int, dtype: str) -> Any:
        return T.alloc_buffer((count * self.edge**2,), dtype, scope=f"wmma.{kind}")


class Simdgroup:
    """Matrices of 8 x 8 of a SIMD-group."""

    edge, vector = 8, 4

    def inputs(self, side: str, count: int) -> Any:
        """See MatrixUnit."""
        return self._matrices(count, "float16")

    def sums(self, count: int) -> Any:
        """See MatrixUnit."""
        made = self._matrices(count, "float32")
        for i in range(count):
            T.evaluate(T.metal.make_filled_simdgroup_matrix(made.data, i, real(0), *self._shape))
        return made

    def load(
        self,
        side: str,
        matrices: Any,
        index: int,
        source: Any,
        at: Expr,
        stride: int,
        *,
        transposed: bool = False,
    ) -> None:
        """See MatrixUnit."""
        start = T.tvm_access_ptr("float16", source.data, at, self.edge * stride, 1)
        target = matrices.data, index
        T.evaluate(T.metal.simdgroup_load(*target, start, stride, *self._shape, transposed))

    def multiply(self, sums: Any, index: int, a: Any, i: int, b: Any, j: int) -> None:
        """See MatrixUnit."""
        total = sums.data, index
        T.evaluate(T.metal.simdgroup_multiply_accumulate(*total, a.data, i, b.data, j, *total))

    def store(
        self, sums: Any, index: int, to: Any, at: Expr, stride: int, *, transposed: bool = False
    ) -> None:
        """See MatrixUnit."""
        start = T.tvm_access_ptr("float32", to.data, at, self.edge * stride, 2)
        source = sums.data, index
        T.evaluate(T.metal.simdgroup_store(*source, start, stride, *self._shape, transposed))

    @property
    def _shape(self) -> tuple[int, int]:
        return self.edge, self.edge

    def _matrices(self, count: int, dtype: str) -> Any:
        return T.alloc_buffer((count * self.edge**2,), dtype, scope="metal.simdgroup")


_LAYOUTS = {False: "row_major", True: "col_major"}
UNITS: dict[str, MatrixUnit] = {"wmma": Wmma(), "simdgroup": Simdgroup()}
"""By the name in a target's row."""
