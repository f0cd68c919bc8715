"""Columns of groups brought together: no arithmetic."""

from __future__ import annotations

from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.rows import each_row
from mlcc_compiler.kernels.cpu.vector_math import fit_lanes, span
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, kernel, store
from mlcc_compiler.kernels.parts import parts_of


def take_parts(isa: Isa, row: Sizes, groups: int, text: str) -> PrimFunc:
    """(x f32[n, width]) -> f32[n, wanted]: of every group each part, part after part."""
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
