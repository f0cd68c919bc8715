"""Rows that the host wrote, in the places of tokens."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, PrimFunc, activations, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import each_element
from mlcc_compiler.kernels.gpu.workgroup import bind, int32


def inputs_embeds(gpu: Gpu, width: int, first: int, mixed: bool) -> PrimFunc:
    """(ids i32[n], x f32[n, width] if `mixed`, embeddings f32[slots, width]) -> f32[n, width]: row
    id - `first` for an id from `first` on, else x's. An id beyond all rows reads the last."""

    def body(ids: Expr, *rest: Expr) -> None:
        *x, embeddings, out = rest

        def element(i: Expr, j: Expr) -> None:
            slot = bind(ids[i] - first)
            at = bind(T.max(T.min(slot, int32(embeddings.shape[0]) - 1), 0))
            if not x:
                store(out, embeddings[at, j], i, j)
                return
            with T.If(slot >= 0):
                with T.Then():
                    store(out, embeddings[at, j], i, j)
                with T.Else():
                    store(out, x[0][i, j], i, j)

        each_element(gpu, ids.shape[0], width, element)

    rows = activations(gpu, "n", width)
    inputs = {"x": rows} if mixed else {}
    return kernel(body, ids=i32("n"), **inputs, embeddings=f32("slots", width), out=rows)
