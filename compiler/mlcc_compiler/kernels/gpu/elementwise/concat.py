"""Concatenation and selection of columns."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.column_parts import Part, parts_of
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element
from mlcc_compiler.kernels.gpu.workgroup import bind, when


def side_by_side(gpu: Gpu, *rows: Sizes) -> PrimFunc:
    """(parts f32[n, size]) -> f32[n, sum of sizes]: their columns, one part's after the other's."""
    sizes = [size for (size,) in rows]

    def body(*buffers: Expr) -> None:
        *parts, out = buffers

        def element(i: Expr, j: Expr) -> None:
            begin = 0
            for part, size in zip(parts, sizes, strict=True):
                with when(T.And(j >= begin, j < begin + size)):
                    store(out, part[i, j - begin], i, j)
                begin += size

        each_element(gpu, out.shape[0], sum(sizes), element)

    parts = {f"part{p}": activations(gpu, "n", size) for p, size in enumerate(sizes)}
    return kernel(body, **parts, out=activations(gpu, "n", sum(sizes)))


def take_parts(gpu: Gpu, row: Sizes, groups: int, text: str) -> PrimFunc:
    """(x f32[n, width]) -> f32[n, wanted]: of every group each part, part after part."""
    parts = list(parts_of(row[0], groups, text))
    wanted = groups * sum(part.size for part in parts)

    def source(part: Part, j: Expr) -> Expr:
        inside = j - part.out
        return inside // part.size * part.stride + part.begin + inside % part.size

    def body(x: Expr, out: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            column = source(parts[0], j)
            for part in parts[1:]:
                column = T.Select(j >= part.out, source(part, j), column)
            store(out, x[i, bind(column)], i, j)

        each_element(gpu, x.shape[0], wanted, element)

    return kernel(body, x=activations(gpu, "n", *row), out=activations(gpu, "n", wanted))
