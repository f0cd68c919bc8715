"""Rows that the host wrote, in the places of tokens."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, fit_lanes, span
from mlcc_compiler.kernels.frame import Expr, PrimFunc, activations, f32, i32, kernel, store


def inputs_embeds(isa: Isa, width: int, first: int, mixed: bool) -> PrimFunc:
    """(ids i32[n], x f32[n, width] if `mixed`, embeddings f32[slots, width]) -> f32[n, width]: row
    id - `first` for an id from `first` on, else x's. An id beyond all rows reads the last."""
    lanes = fit_lanes(width, isa.lanes)

    def body(ids: Expr, *rest: Expr) -> None:
        *x, embeddings, out = rest

        def row(i: Expr) -> None:
            slot = bind(T.Cast("int64", ids[i]) - first)
            last = T.Cast("int64", embeddings.shape[0]) - 1
            at = bind(T.max(T.min(slot, last), T.int64(0)))
            with T.serial(width // lanes) as j:
                columns = span(j * lanes, lanes)
                if not x:
                    store(out, embeddings[at, columns], i, columns)
                    return
                with T.If(slot >= 0):
                    with T.Then():
                        store(out, embeddings[at, columns], i, columns)
                    with T.Else():
                        store(out, x[0][i, columns], i, columns)

        each_row(ids.shape[0], width, row)

    rows = activations(isa, "n", width)
    inputs = {"x": rows} if mixed else {}
    return kernel(body, ids=i32("n"), **inputs, embeddings=f32("slots", width), out=rows)
