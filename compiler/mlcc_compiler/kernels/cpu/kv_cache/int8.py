"""8-bit keys and values on the CPU: `append_kv` for pages with scales.

A token's head becomes 8-bit numbers and one scale, its largest magnitude divided by 127 (absmax;
LLM.int8(), Dettmers et al., 2022), rounded to the nearest even. Reading is `attention/`.
"""

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.layout import KvLayout
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    cast,
    fit_lanes,
    maximum,
    reduce_lanes,
    span,
    spread,
    vector,
)
from mlcc_compiler.kernels.cpu.kv_cache.layout import Put, kv_place
from mlcc_compiler.kernels.frame import (
    Expr,
    PrimFunc,
    activations,
    i32,
    kernel,
    page_arguments,
    store,
)
from mlcc_compiler.kernels.int8 import INFINITE, LARGEST_INT8, MAGNITUDE, ROUNDING, SMALLEST


def append_int8(isa: Isa, layout: KvLayout) -> PrimFunc:
    """(k f32[n, kv_heads, head_dim], v likewise, token_slots i32[n], pages, scales) -> pages and
    scales, in place.

    Token i goes to page slot // page_size at offset slot % page_size; slot -1 writes nothing. A
    non-finite number makes the scale non-finite: that head of the token reads as NaN.
    """
    kv_heads, head_dim, page_size = layout.kv_heads, layout.head_dim, layout.page_size

    def body(k: Expr, v: Expr, slots: Expr, pages: Expr, scales: Expr) -> None:
        def token(i: Expr) -> None:
            slot = bind(T.Cast("int64", slots[i]))
            with T.If(slot >= 0), T.Then():
                page, offset = bind(T.floordiv(slot, page_size)), bind(T.floormod(slot, page_size))
                for which, x in enumerate((k, v)):
                    with T.serial(kv_heads) as h:
                        put = kv_place(layout, which, pages, page, h, offset)
                        scale = (scales, page, which, h, offset)
                        keep_head(isa, head_dim, (x, i, h), put, scale)

        each_row(slots.shape[0], 2 * kv_heads * head_dim, token)

    rows = activations(isa, "n", kv_heads, head_dim)
    return kernel(body, k=rows, v=rows, token_slots=i32("n"), **page_arguments(layout))


def keep_head(
    isa: Isa,
    size: int,
    source: tuple[Expr, ...],
    put: Put,
    scales: tuple[Expr, ...],
) -> None:
    """Round `size` numbers and `put` them into the pages; source and scales are a buffer and the
    index of their row in it."""
    lanes = fit_lanes(size, isa.lanes)
    ints = vector("int32", lanes)
    x, *row = source

    def values(j: Expr) -> Expr:
        place = (*row, span(j * lanes, lanes))
        at: Expr = x[place]
        return at

    # as integers, whose order is that of magnitudes, with infinity and NaN above all
    top = Registers(1, lanes, "int32")
    top[0] = spread(T.int32(0), lanes)
    with T.serial(size // lanes) as j:
        bits = T.reinterpret(ints, values(j))
        bits = bind(T.bitwise_and(bits, spread(T.int32(MAGNITUDE), lanes)))
        top[0] = maximum(bits, top[0])
    bits = reduce_lanes(top[0], maximum)
    largest = bind(T.reinterpret("float32", bits))
    buffer, *at = scales
    store(buffer, largest / T.float32(LARGEST_INT8), *at)
    rounds = T.And(bits >= T.int32(SMALLEST), bits < T.int32(INFINITE))
    with T.If(rounds):
        with T.Then():
            factor = bind(T.float32(LARGEST_INT8) / largest)
            with T.serial(size // lanes) as j:
                moved = values(j) * spread(factor, lanes) + spread(ROUNDING, lanes)
                low = bind(T.reinterpret(ints, moved))
                put(j * lanes, cast("int8", low))
        with T.Else(), T.serial(size // lanes) as j:
            put(j * lanes, spread(T.int8(0), lanes))
