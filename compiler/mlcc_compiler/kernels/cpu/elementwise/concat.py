"""Concatenation and selection of columns."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.column_parts import parts_of
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import fit_lanes, span
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, kernel, store


def side_by_side(isa: Isa, *rows: Sizes) -> PrimFunc:
    """(parts f32[n, size]) -> f32[n, sum of sizes]: the parts' columns concatenated."""
    sizes = [size for (size,) in rows]

    def body(*buffers: Expr) -> None:
        *parts, out = buffers

        def one(i: Expr) -> None:
            begin = 0
            for part, size in zip(parts, sizes, strict=True):
                lanes = fit_lanes(size, isa.lanes)
                with T.serial(size // lanes) as j:
                    value = part[i, span(j * lanes, lanes)]
                    store(out, value, i, span(begin + j * lanes, lanes))
                begin += size

        each_row(out.shape[0], sum(sizes), one)

    parts = {f"part{p}": activations(isa, "n", size) for p, size in enumerate(sizes)}
    return kernel(body, **parts, out=activations(isa, "n", sum(sizes)))


def take_parts(isa: Isa, row: Sizes, groups: int, text: str) -> PrimFunc:
    """(x f32[n, width]) -> f32[n, wanted]: each part of every group, part after part."""
    parts = list(parts_of(row[0], groups, text))
    wanted = groups * sum(part.size for part in parts)

    def body(x: Expr, out: Expr) -> None:
        def one(i: Expr) -> None:
            for part in parts:
                lanes = fit_lanes(part.size, isa.lanes)
                with T.grid(groups, part.size // lanes) as (g, j):
                    source = g * part.stride + part.begin + j * lanes
                    to = part.out + g * part.size + j * lanes
                    store(out, x[i, span(source, lanes)], i, span(to, lanes))

        each_row(x.shape[0], wanted, one)

    return kernel(body, x=activations(isa, "n", *row), out=activations(isa, "n", wanted))
