"""Rows that the host wrote, in the places of tokens, and weighted sums of a table's rows."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, fit_lanes, span, spread
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, i32, kernel, store


def inputs_embeds(
    isa: Isa, width: int, first: int, mixed: bool, part: int, parts: int, added: int
) -> PrimFunc:
    """(ids i32[n], x f32[n, width] if `mixed`, embeddings f32[slots, parts * width]) -> f32[n,
    width]: this part of row id - `first` for an id from `first` on, plus x's if `added`, else x's
    alone. An id beyond all rows reads the last."""
    lanes = fit_lanes(width, isa.lanes)

    def body(ids: Expr, *rest: Expr) -> None:
        *x, embeddings, out = rest

        def row(i: Expr) -> None:
            slot = bind(T.Cast("int64", ids[i]) - first)
            last = T.Cast("int64", embeddings.shape[0]) - 1
            at = bind(T.max(T.min(slot, last), T.int64(0)))
            with T.serial(width // lanes) as j:
                columns = span(j * lanes, lanes)
                value = embeddings[at, span(part * width + j * lanes, lanes)]
                if not x:
                    store(out, value, i, columns)
                    return
                with T.If(slot >= 0):
                    with T.Then():
                        value = value + x[0][i, columns] if added else value
                        store(out, value, i, columns)
                    with T.Else():
                        store(out, x[0][i, columns], i, columns)

        each_row(ids.shape[0], width, row)

    rows = activations(isa, "n", width)
    inputs = {"x": rows} if mixed else {}
    return kernel(body, ids=i32("n"), **inputs, embeddings=f32("slots", parts * width), out=rows)


def embedding_bag(isa: Isa, row: Sizes, table: Sizes) -> PrimFunc:
    """(taps f32[n, 2 k], table f32[rows, hidden]) -> f32[n, hidden]: sums of k rows, whose numbers
    come first, then their weights. A number beyond the table reads its last row."""
    (both,), (count, hidden) = row, table
    taps, lanes = both // 2, fit_lanes(hidden, isa.lanes)

    def body(x: Expr, values: Expr, out: Expr) -> None:
        def one(i: Expr) -> None:
            at = [
                bind(T.max(T.min(T.Cast("int64", x[i, k]), T.int64(count - 1)), T.int64(0)))
                for k in range(taps)
            ]
            with T.serial(hidden // lanes) as j:
                columns = span(j * lanes, lanes)
                total = spread(0.0, lanes)
                for k in range(taps):
                    total = total + values[at[k], columns] * spread(x[i, taps + k], lanes)
                store(out, total, i, columns)

        each_row(x.shape[0], taps * hidden, one)

    return kernel(
        body, taps=f32("n", both), table=f32(count, hidden), out=activations(isa, "n", hidden)
    )
