"""Rows that the host wrote, in the places of tokens, and weighted sums of a table's rows."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element
from mlcc_compiler.kernels.gpu.workgroup import bind, int32, real


def inputs_embeds(
    gpu: Gpu, width: int, first: int, mixed: bool, part: int, parts: int, added: int
) -> PrimFunc:
    """(ids i32[n], x f32[n, width] if `mixed`, embeddings f32[slots, parts * width]) -> f32[n,
    width]: this part of row id - `first` for an id from `first` on, plus x's if `added`, else x's
    alone. An id beyond all rows reads the last."""

    def body(ids: Expr, *rest: Expr) -> None:
        *x, embeddings, out = rest

        def element(i: Expr, j: Expr) -> None:
            slot = bind(ids[i] - first)
            at = bind(T.max(T.min(slot, int32(embeddings.shape[0]) - 1), 0))
            value = embeddings[at, j + part * width]
            if not x:
                store(out, value, i, j)
                return
            with T.If(slot >= 0):
                with T.Then():
                    store(out, value + x[0][i, j] if added else value, i, j)
                with T.Else():
                    store(out, x[0][i, j], i, j)

        each_element(gpu, ids.shape[0], width, element)

    rows = activations(gpu, "n", width)
    inputs = {"x": rows} if mixed else {}
    return kernel(body, ids=i32("n"), **inputs, embeddings=f32("slots", parts * width), out=rows)


def embedding_bag(gpu: Gpu, row: Sizes, table: Sizes) -> PrimFunc:
    """(taps f32[n, 2 k], table f32[rows, hidden]) -> f32[n, hidden]: sums of k rows, whose numbers
    come first, then their weights. A number beyond the table reads its last row."""
    (both,), (count, hidden) = row, table
    taps = both // 2

    def body(x: Expr, values: Expr, out: Expr) -> None:
        def element(i: Expr, j: Expr) -> None:
            total = real(0.0)
            for k in range(taps):
                at = bind(T.max(T.min(x[i, k].astype("int32"), count - 1), 0))
                total = total + values[at, j] * x[i, taps + k]
            store(out, total, i, j)

        each_element(gpu, x.shape[0], hidden, element)

    return kernel(
        body, taps=f32("n", both), table=f32(count, hidden), out=activations(gpu, "n", hidden)
    )
