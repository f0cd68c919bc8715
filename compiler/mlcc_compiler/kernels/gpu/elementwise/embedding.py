"""Look up rows of a packed table, [vocab, hidden], as activations: a thread per unit of eight.

The layout is that of a linear weight, so that a tied head and the embedding share one copy. Ids
outside the table are clamped to it: a bad id can give a wrong row but never a crash.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import tirx
from mlcc_compiler.ir.graph import Graph, Weight
from mlcc_compiler.kernels.frame import Expr, PrimFunc, activations, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.split_weights import call_parts, packing
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.workgroup import bind, int32, when
from mlcc_compiler.kernels.kernel_set import KernelSet


def emit_embedding(
    kernels: KernelSet, graph: Graph, token_ids: Any, table: Weight, *, out: Any
) -> Any:
    """Emit [n, hidden], the rows of `token_ids`; each part of the table writes the rows that it
    holds."""
    form = packing(kernels.device, table.plan.shape, table.plan.scheme)
    made = [kernels.cached_kernel(embedding_part, form, p) for p in range(len(form.parts))]
    return call_parts(graph, "embedding", table, made, lambda part: [token_ids, *part], out)


def embedding_part(gpu: Gpu, packing: GpuPacking, part: int) -> PrimFunc:
    """(token_ids i32[n], the part's tensors, y[n, hidden]): the rows of tokens in the part."""
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
    return kernel(body, **arguments, y=activations(gpu, "n", packing.k))
