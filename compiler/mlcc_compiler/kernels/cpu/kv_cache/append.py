"""Kernels that move rows: into KV pages, between pages, and out of a step. No arithmetic.

Pages follow PagedAttention (Kwon et al., 2023); the layout of a row in them is `kv_place`.
`append_kv` and `copy_pages` write their last argument in place, for R.call_tir_inplace.
"""

from math import prod

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheTensor
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, fit_lanes, span
from mlcc_compiler.kernels.cpu.kv_cache.int8 import append_int8
from mlcc_compiler.kernels.cpu.kv_cache.layout import kv_place
from mlcc_compiler.kernels.frame import (
    SIZE,
    Expr,
    PrimFunc,
    Sizes,
    activations,
    i32,
    kernel,
    page_arguments,
    store,
    tensor_argument,
    unravel_index,
)
from mlcc_compiler.kernels.step import Step, step_argument
from mlcc_compiler.kernels.step_arguments import paged_groups, read_step_arguments


def append_kv(isa: Isa, layout: KvLayout) -> PrimFunc:
    """(k f32[n, kv_heads, head_dim], v likewise, token_slots i32[n], pages) -> pages, in place.

    Token i goes to page slot // page_size at offset slot % page_size; slot -1 writes nothing. 8-bit
    pages also have scales: `append_int8`.
    """
    if layout.is_int8:
        return append_int8(isa, layout)
    kv_heads, head_dim, page_size = layout.kv_heads, layout.head_dim, layout.page_size
    lanes = fit_lanes(head_dim, isa.lanes)

    def body(k: Expr, v: Expr, slots: Expr, pages: Expr) -> None:
        def token(i: Expr) -> None:
            slot = bind(T.Cast("int64", slots[i]))
            with T.If(slot >= 0), T.Then():
                page, offset = bind(T.floordiv(slot, page_size)), bind(T.floormod(slot, page_size))
                with T.grid(kv_heads, head_dim // lanes) as (h, j):
                    at = span(j * lanes, lanes)
                    for which, x in enumerate((k, v)):
                        put = kv_place(layout, which, pages, page, h, offset)
                        put(j * lanes, x[i, h, at])

        each_row(slots.shape[0], 2 * kv_heads * head_dim, token)

    rows = activations(isa, "n", kv_heads, head_dim)
    return kernel(body, k=rows, v=rows, token_slots=i32("n"), **page_arguments(layout))


def copy_pages(isa: Isa, kept: CacheTensor, layout: StepLayout, group: int) -> PrimFunc:
    """(step, tensor, c) -> tensor, in place, after the first c copies of the step for this group. A
    page, or a state's slot, may be of any shape."""
    *outer, width = kept.shape
    lanes, rows = fit_lanes(width, isa.lanes), outer.pop() if outer else 1
    parts = prod(outer)

    def body(words: Expr, tensor: Expr, count: Expr) -> None:
        step = Step(layout, words)
        with T.parallel(count * parts) as task:
            i, part = T.floordiv(task, parts), T.floormod(task, parts)
            with T.If(step.copy(i, "group") == group), T.Then():
                old, new = (
                    bind(T.Cast("int64", step.copy(i, name))) for name in ("source", "destination")
                )
                place = [bind(at) for at in unravel_index(part, outer)]
                with T.grid(rows, width // lanes) as (t, j):
                    at = [*place, t, span(j * lanes, lanes)][-len(kept.shape) :]
                    source = (old, *at)
                    store(tensor, tensor[source], new, *at)

    return kernel(body, step=step_argument(layout), tensor=tensor_argument(kept), count=SIZE)


def take_rows(isa: Isa, row: Sizes, index: Sizes) -> PrimFunc:
    """(x f32[n, hidden], rows i32[r]) -> f32[r, hidden] with out[i] = x[rows[i]]."""
    (hidden,) = row
    lanes = fit_lanes(hidden, isa.lanes)

    def body(x: Expr, rows: Expr, out: Expr) -> None:
        with T.serial(rows.shape[0]) as i:
            source = bind(T.Cast("int64", rows[i]))
            with T.serial(hidden // lanes) as j:
                at = span(j * lanes, lanes)
                store(out, x[source, at], i, at)

    return kernel(
        body, x=activations(isa, "n", hidden), rows=i32("r"), out=activations(isa, "r", hidden)
    )


def read_step(isa: Isa, layout: StepLayout) -> PrimFunc:
    """The kernel of `read_step_arguments`."""
    groups = paged_groups(layout)

    def body(words: Expr, last: Expr, ids: Expr, positions: Expr, rows: Expr, *slots: Expr) -> None:
        step = Step(layout, words)
        count, wanted = bind(step.count("tokens")), bind(step.count("rows"))
        with T.serial(ids.shape[0]) as i, T.If(i < count):
            with T.Then():
                token = bind(step.token(i, "id"))
                with T.If(token < 0):
                    with T.Then():
                        store(ids, last[T.Cast("int64", -1 - token)], i)
                    with T.Else():
                        store(ids, token, i)
                store(positions, step.token(i, "position"), i)
                for group, out in zip(groups, slots, strict=True):
                    store(out, step.token(i, f"slot.{group}"), i)
            with T.Else():
                store(ids, T.int32(0), i)
                store(positions, T.int32(0), i)
                for out in slots:
                    store(out, T.int32(-1), i)
        with T.serial(rows.shape[0]) as i, T.If(i < wanted):
            with T.Then():
                store(rows, step.row(i, "token"), i)
            with T.Else():
                store(rows, T.int32(0), i)

    return kernel(body, **read_step_arguments(layout))
