"""Embedding lookup: a plain [V, H] table, or the packed form of a linear weight.

Reading the packed form lets a tied head and embedding share one copy. Ids outside the table are
clamped to it, so that a bad id can give a wrong row but never a crash. Not optimised for speed: a
token costs less than half a microsecond.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T
from mlcc_compiler.ir.graph import Graph, Weight
from mlcc_compiler.ir.layout import PhysicalTensor, WeightLayout
from mlcc_compiler.kernels.cpu.isa.isa import GENERIC, Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import fit_lanes, span
from mlcc_compiler.kernels.cpu.linear.linear import packing
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.tile import OPAQUE
from mlcc_compiler.kernels.cpu.linear.weights.codes import StepCodes
from mlcc_compiler.kernels.cpu.linear.weights.scales import Scales
from mlcc_compiler.kernels.cpu.linear.weights.widen import widen
from mlcc_compiler.kernels.kernel_set import KernelSet
from mlcc_compiler.kernels.planes import BLOCK, STEP, vectors_of
from mlcc_compiler.quantization import Scheme, scheme
from mlcc_compiler.quantization.floats import to_storage

Expr = Any


def emit_embedding(
    kernels: KernelSet, graph: Graph, token_ids: Any, table: Weight, *, out: Any
) -> Any:
    """Emit [n, hidden], the rows of `token_ids`."""
    plan = table.plan
    row = scheme(plan.scheme)
    factory = embedding_table if plan.use == "table" and row.is_float else embedding_packed
    kernel = kernels.cached_kernel(factory, *plan.shape, row)
    return graph.call_tir(kernel, "embedding", [token_ids, *table.parts], out)


def layout(isa: Isa, shape: Sequence[int], scheme_name: str) -> WeightLayout:
    """A float table that is only looked up keeps its rows; codes are packed as a linear's."""
    row = scheme(scheme_name)
    vocab, hidden = shape
    if row.is_float:
        part = table_tensor(vocab, hidden, row)
        return WeightLayout((part,), lambda weight: [to_storage(weight, row.dtype)])
    return packing(vocab, hidden, row, isa).layout()


def table_tensor(vocab: int, hidden: int, scheme: Scheme) -> PhysicalTensor:
    """The tensor of `embedding_table`: plain rows, bf16 as its bits."""
    dtype = "uint16" if scheme.dtype == "bfloat16" else scheme.dtype
    return PhysicalTensor("", (vocab, hidden), dtype)


def embedding_table(isa: Isa, vocab: int, hidden: int, scheme: Scheme) -> Expr:
    """PrimFunc(token_ids i32[n], table [V, H], y f32[n, H]) for a float scheme."""
    stored = table_tensor(vocab, hidden, scheme)
    lanes = fit_lanes(hidden, isa.lanes)

    def row(buffers: list[Expr], y: Expr, i: Expr, token: Expr) -> None:
        with B.serial(hidden // lanes) as k:
            value = widen(isa, buffers[0], [token, k * lanes], lanes)
            B.buffer_store(y, value, [i, span(k * lanes, lanes)])

    return _gather(isa, [stored], vocab, hidden, row)


def embedding_packed(isa: Isa, vocab: int, hidden: int, scheme: Scheme) -> Expr:
    """PrimFunc(token_ids i32[n], *tensors of CpuPacking(V, H, scheme, isa), y f32[n, H])."""
    form = CpuPacking(vocab, hidden, scheme, isa)

    def row(buffers: list[Expr], y: Expr, i: Expr, token: Expr) -> None:
        tile, column = B.bind(token // form.width), B.bind(token % form.width)
        if scheme.is_float:
            with B.serial(hidden) as k:
                B.buffer_store(y, widen(isa, buffers[0], [tile, k, column], 1), [i, k])
        else:
            _unpack_row(form, buffers, y, i, tile, column)

    return _gather(isa, list(form.tensors), vocab, hidden, row)


def _gather(isa: Isa, tensors: list[PhysicalTensor], vocab: int, hidden: int, row: Any) -> Expr:
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE})
        ids_handle = B.arg("token_ids", T.handle())
        names = [t.suffix[1:] or "table" for t in tensors]
        buffers = [
            B.arg(name, B.buffer(t.shape, t.dtype)) for name, t in zip(names, tensors, strict=True)
        ]
        y_handle = B.arg("y", T.handle())
        n = T.int64()
        ids = B.match_buffer(ids_handle, (n,), "int32")
        y = B.match_buffer(y_handle, (n, hidden), isa.activation_dtype)
        with B.serial(n) as i:
            token = T.min(T.max(ids[i], T.int32(0)), T.int32(vocab - 1))
            row(buffers, y, i, B.bind(T.Cast("int64", token)))
    return builder.get()


def _unpack_row(
    packing: CpuPacking, buffers: list[Expr], y: Expr, i: Expr, tile: Expr, column: Expr
) -> None:
    """One column of a tile of codes: four neighbours at a time, one lane of the linear's."""
    p, codes, scales = packing, buffers[0], Scales(packing, buffers)
    one = replace(GENERIC, vector_bits=32, stored_signed=p.flips)

    def four(value: Expr) -> Expr:
        return T.Broadcast(value, 4)

    def block(stretch: Expr, index: Expr, count: int) -> None:
        first = B.bind(stretch * p.vectors + index * vectors_of(p.scheme.bits, BLOCK))
        steps = StepCodes(
            p.scheme, one, count, lambda v: codes.vload([tile, first + v, column * 4], "uint8x4")
        )
        for step in range(count):
            k = B.bind(stretch * p.rows.group + (index * BLOCK + step) * STEP)
            at = (tile, B.bind(k // p.group))
            code = steps.step(step)
            middle = scales.middle
            zero = scales.zero(at, column, 1) if middle is None else T.int32(middle)
            value = T.Cast("float32x4", T.Cast("int32x4", code) - four(zero))
            value = value * four(scales.scale(at, column, 1))
            if scales.minima:
                value = value + four(scales.minimum(at, column, 1))
            B.buffer_store(y, value, [i, T.Ramp(k, 1, 4)])

    with B.serial(p.stretches) as stretch:
        with B.serial(p.steps // BLOCK) as index:
            block(stretch, index, BLOCK)
        if p.steps % BLOCK:
            block(stretch, T.int64(p.steps // BLOCK), p.steps % BLOCK)
