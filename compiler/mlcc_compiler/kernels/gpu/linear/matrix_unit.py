"""Matrices of a subgroup: the half-precision matrix instructions of a device, sums in float32.

Two kinds are intrinsics of TVM that its generators print: `wmma` as nvcuda::wmma (CUDA C++, sm_70
and later), `simdgroup` as simdgroup_matrix (MSL 2.3, Apple 7 and later). The third is WGSL as naga
extends it (wgpu's experimental `wgpu_cooperative_matrix`), the fourth as Tint does (Chromium's
`chromium_experimental_subgroup_matrix`): TVM does not know them, so that their lines are emitted as
text. The instructions are used directly rather than by a schedule that tensorizes a
product of float16 matrices: dequantization, odd sizes and float32 activations would have to be
rediscovered from it, where here they are lines of a loop.
"""

from __future__ import annotations

from math import prod
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
    """Largest vector of float16 in the device's language; 1 = none."""

    def inputs(self, side: str, count: int, name: str) -> Any:
        """`count` float16 matrices for the left ("a") or the right ("b") side of products. The name
        is unique among the matrices of a kernel."""

    def sums(self, count: int, name: str) -> Any:
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

    def inputs(self, side: str, count: int, name: str) -> Any:
        """See MatrixUnit."""
        return self._matrices(f"matrix_{side}", count, "float16")

    def sums(self, count: int, name: str) -> Any:
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

    def inputs(self, side: str, count: int, name: str) -> Any:
        """See MatrixUnit."""
        return self._matrices(count, "float16")

    def sums(self, count: int, name: str) -> Any:
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


class CooperativeMatrix:
    """Matrices of a subgroup in WGSL, `edge` x `edge`.

    TVM prints the name of an external function as it stands, so that such a name is a line of WGSL;
    where the line is more than a call, its last characters make a comment of the parentheses.
    """

    vector = 1  # TVM prints a vector's access for WGSL as one of each element

    def __init__(self, edge: int) -> None:
        self.edge = edge

    def inputs(self, side: str, count: int, name: str) -> Any:
        """See MatrixUnit."""
        return self._matrices(f"f16,{side.upper()}", count, name)

    def sums(self, count: int, name: str) -> Any:
        """See MatrixUnit."""
        return self._matrices("f32,C", count, name)

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
        load = f"coopLoad{_WGSL_LAYOUTS[transposed]}<{self._type(f'f16,{side.upper()}')}>"
        self._at(source, at, f"{matrices[index]} = {load}(at, {stride}u);")

    def multiply(self, sums: Any, index: int, a: Any, i: int, b: Any, j: int) -> None:
        """See MatrixUnit."""
        total = sums[index]
        _line(f"{total} = coopMultiplyAdd({a[i]}, {b[j]}, {total}); //")

    def store(
        self, sums: Any, index: int, to: Any, at: Expr, stride: int, *, transposed: bool = False
    ) -> None:
        """See MatrixUnit."""
        layout = _WGSL_LAYOUTS[transposed]
        self._at(to, at, f"coopStore{layout}({sums[index]}, at, {stride}u);")

    def _type(self, parameters: str) -> str:
        return f"coop_mat{self.edge}x{self.edge}<{parameters}>"

    def _matrices(self, parameters: str, count: int, name: str) -> list[str]:
        """Declare variables, zero at first, in the current block."""
        names = [f"matrix_{name}_{i}" for i in range(count)]
        for each in names:
            _line(f"var {each} = {self._type(parameters)}")
        return names

    def _at(self, buffer: Any, at: Expr, line: str) -> None:
        """A line of WGSL in which `at` points to an element of workgroup memory."""
        size = prod(int(n) for n in buffer.shape)
        flat = T.decl_buffer((size,), buffer.dtype, data=buffer.data, scope="shared")
        _line("{ let at = &", flat[at])
        _line(f"{line} }} //")


class SubgroupMatrix(CooperativeMatrix):
    """The same in Tint's WGSL, `edge` x `edge`: Chromium's experimental subgroup matrices. A load
    takes a whole array and a place in it."""

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
        kind = f"{self._type(f'f16,{side.upper()}')}, {_TINT_LAYOUTS[transposed]}"
        load = f"subgroupMatrixLoad<{kind}>(whole, at, {stride}u);"
        self._at(source, at, f"{matrices[index]} = {load}")

    def multiply(self, sums: Any, index: int, a: Any, i: int, b: Any, j: int) -> None:
        """See MatrixUnit."""
        total = sums[index]
        _line(f"{total} = subgroupMatrixMultiplyAccumulate({a[i]}, {b[j]}, {total}); //")

    def store(
        self, sums: Any, index: int, to: Any, at: Expr, stride: int, *, transposed: bool = False
    ) -> None:
        """See MatrixUnit."""
        store = f"subgroupMatrixStore<{_TINT_LAYOUTS[transposed]}>"
        self._at(to, at, f"{store}(whole, at, {sums[index]}, {stride}u);")

    def _type(self, parameters: str) -> str:
        dtype, side = parameters.split(",")
        return f"subgroup_matrix_{_TINTS[side]}<{dtype}, {self.edge}, {self.edge}>"

    def _at(self, buffer: Any, at: Expr, line: str) -> None:
        """A line of WGSL in which `whole` points to workgroup memory and `at` is a place in it."""
        _line("{ let whole = &", buffer.data)
        _line("let at = u32", at)
        _line(f"{line} }} //")


def _line(text: str, *arguments: Expr) -> None:
    T.evaluate(T.call_extern("int32", text, *arguments))


_WGSL_LAYOUTS = {False: "T", True: ""}
"""naga's plain functions take columns one after the other, those with a T rows."""
_LAYOUTS = {False: "row_major", True: "col_major"}
_TINT_LAYOUTS = {False: "row_major", True: "col_major"}
_TINTS = {"A": "left", "B": "right", "C": "result"}
UNITS: dict[str, MatrixUnit] = {
    "wmma": Wmma(),
    "simdgroup": Simdgroup(),
    "coop_mat8x8": CooperativeMatrix(8),
    "coop_mat16x16": CooperativeMatrix(16),
    "subgroup_matrix8x8": SubgroupMatrix(8),
    "subgroup_matrix16x16": SubgroupMatrix(16),
}
"""By the name in a target's row."""
