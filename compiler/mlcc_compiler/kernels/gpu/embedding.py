"""Look up rows of a packed table, [vocab, hidden], as float32: a thread per unit of eight.

The layout is that of a linear weight, so that a tied head and the embedding share one copy. Ids
outside the table are clamped to it: a bad id can give a wrong row but never a crash.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from mlcc_compiler._tvm import tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import each_element
from mlcc_compiler.kernels.gpu.linear_parts import call_parts, packing_of
from mlcc_compiler.kernels.gpu.linear_weight import UNIT, WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.weight_layout import Packing
from mlcc_compiler.kernels.gpu.workgroup import bind, int32, when
from mlcc_compiler.passes.rewrite import dims, tensor

if TYPE_CHECKING:
    from mlcc_compiler.passes.lower import LowerOperators, Weight


def embedding(gpu: Gpu, graph: LowerOperators, token_ids: Any, table: Weight) -> Any:
    """Emit f32[n, hidden], the rows of `token_ids`; each part writes those that it holds."""
    packing = packing_of(gpu, table)
    kernels = [embedding_part(gpu, packing, p) for p in range(len(packing.parts))]
    out = tensor([dims(token_ids)[0], packing.k])
    return call_parts(graph, "embedding", table, kernels, lambda part: [token_ids, *part], out)


@cache
def embedding_part(gpu: Gpu, packing: Packing, part: int) -> PrimFunc:
    """(token_ids i32[n], the part's tensors, y f32[n, hidden]): the rows of tokens in the part."""
    rows = packing.parts[part]

    def body(ids: Expr, *buffers: Expr) -> None:
        *tensors, y = buffers
        reader = WeightReader(gpu, packing, tensors)

        def element(i: Expr, unit: Expr) -> None:
            token = bind(tirx.max(tirx.min(ids[i], int32(packing.n - 1)), int32(0)))
            with when(tirx.all(token >= rows.start, token < rows.stop)):
                for j, value in enumerate(reader.weights(bind(token - rows.start), unit)):
                    column = unit * UNIT + j
                    if packing.k % UNIT:
                        with when(column < packing.k):
                            store(y, value, i, column)
                    else:
                        store(y, value, i, column)

        each_element(gpu, ids.shape[0], reader.units, element)

    arguments = {"token_ids": i32("n"), **weight_arguments(packing, part)}
    return kernel(body, **arguments, y=f32("n", packing.k))
