"""Kernels around latent attention (`mlcc_compiler.ir.mla`) on the CPU: the products with each
head's part of kv_b_proj, and the append, which normalises and rotates. The attention is
`attention/latent.py`.
"""

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.mla import MlaLayout, MlaShape
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.register_tile import (
    Step,
    lane_sums,
    product,
    row_tiles,
    tile_shape,
)
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    cast,
    fit_lanes,
    span,
    spread,
    sum_lanes,
)
from mlcc_compiler.kernels.frame import (
    Expr,
    PrimFunc,
    activations,
    f32,
    i32,
    kernel,
    store,
    tensor_argument,
)

_TOKENS = 32  # of a task: the rows that read a head's weights while they are in a core's own cache


def latent_query(isa: Isa, shape: MlaShape) -> PrimFunc:
    """(q f32[n, heads, nope + rope], weight, table f32[n, rope]) -> f32[n, heads, rank + rope]: the
    query for latents, then the rotated rest of q."""
    nope, rope, rank, each = shape.nope, shape.rope, shape.rank, shape.nope + shape.value
    fit = tile_shape(fit_lanes(rank, isa.lanes), isa.lanes)
    vectors = fit_lanes(rank // fit.lanes, fit.vectors)

    def body(q: Expr, w: Expr, angles: Expr, out: Expr) -> None:
        def head(h: Expr, first: Expr, count: Expr) -> None:
            with T.serial(rank // (vectors * fit.lanes)) as c:
                column = bind(c * (vectors * fit.lanes))

                def tile(r: Expr, rows: int) -> None:
                    def walk(step: Step) -> None:
                        with T.serial(nope) as d:
                            step(
                                lambda i: q[first + r + i, h, d],
                                lambda v: w[h * each + d, at(v)],
                            )

                    def at(v: int) -> Expr:
                        return span(column + v * fit.lanes, fit.lanes)

                    def finish(i: int, v: int, total: Expr) -> None:
                        store(out, total, first + r + i, h, at(v))

                    zero = spread(0.0, fit.lanes)
                    product(rows, vectors, fit.lanes, walk, lambda i, v: zero, finish)

                row_tiles(count, fit.rows, 1, tile)
            with T.serial(count) as t:
                i = bind(first + t)
                _turn(rope, angles, i, (q, i, h, nope), (out, i, h, rank))

        _each_head(shape.heads, q.shape[0], head)

    q = activations(isa, "n", shape.heads, nope + rope)
    out = activations(isa, "n", shape.heads, rank + rope)
    return kernel(body, q=q, weight=f32(*shape.weight), table=f32("n", rope), out=out)


def latent_value(isa: Isa, shape: MlaShape) -> PrimFunc:
    """(x f32[n, heads, rank], weight) -> f32[n, heads, value]: each head's values from weighted
    sums of latents."""
    rank, value, each = shape.rank, shape.value, shape.nope + shape.value
    lanes = fit_lanes(rank, isa.lanes)
    side = fit_lanes(value, lanes)

    def body(x: Expr, w: Expr, out: Expr) -> None:
        def head(h: Expr, first: Expr, count: Expr) -> None:
            with T.serial(value // side) as g:
                begin = bind(h * each + shape.nope + g * side)

                def tile(r: Expr, rows: int) -> None:
                    def products(i: int) -> list[Expr]:
                        sums = Registers(rows, lanes)
                        for t in range(rows):
                            sums[t] = spread(0.0, lanes)
                        with T.serial(rank // lanes) as j:
                            at = span(j * lanes, lanes)
                            part = bind(w[begin + i, at])
                            for t in range(rows):
                                sums[t] = sums[t] + part * x[first + r + t, h, at]
                        return [sums[t] for t in range(rows)]

                    for t, total in enumerate(lane_sums(side, products)):
                        store(out, total, first + r + t, h, span(g * side, side))

                row_tiles(count, 4, 1, tile)

        _each_head(shape.heads, x.shape[0], head)

    x, out = (activations(isa, "n", shape.heads, size) for size in (rank, value))
    return kernel(body, x=x, weight=f32(*shape.weight), out=out)


def append_latent(isa: Isa, layout: MlaLayout) -> PrimFunc:
    """(x f32[n, rank + rope], norm f32[rank], table f32[n, rope], token_slots i32[n], pages) ->
    pages, in place: x's latent normalised and its key rotated.

    Token i goes to page slot // page_size at offset slot % page_size; slot -1 writes nothing.
    """
    rank, rope = layout.shape.rank, layout.shape.rope
    lanes = fit_lanes(rank, isa.lanes)

    def body(x: Expr, norm: Expr, table: Expr, slots: Expr, pages: Expr) -> None:
        def token(i: Expr) -> None:
            slot = bind(T.Cast("int64", slots[i]))
            with T.If(slot >= 0), T.Then():
                page = bind(T.floordiv(slot, layout.page_size))
                offset = bind(T.floormod(slot, layout.page_size))
                factor = spread(_factor(x, i), lanes)
                with T.serial(rank // lanes) as j:
                    at = span(j * lanes, lanes)
                    value = x[i, at] * factor * norm[at]
                    store(pages, cast(layout.dtype, value), page, offset, at)
                _turn(rope, table, i, (x, i, rank), (pages, page, offset, rank))

        each_row(slots.shape[0], layout.shape.width, token)

    def _factor(x: Expr, i: Expr) -> Expr:
        """What a latent is multiplied with so that its mean square is 1."""
        total = Registers(1, lanes)
        total[0] = spread(0.0, lanes)
        with T.serial(rank // lanes) as j:
            part = bind(x[i, span(j * lanes, lanes)])
            total[0] = total[0] + part * part
        mean = sum_lanes(total[0]) * T.float32(1 / rank)
        return bind(T.float32(1) / T.sqrt(mean + T.float32(layout.shape.eps)))

    x, table = activations(isa, "n", layout.shape.width), f32("n", rope)
    pages = tensor_argument(layout.pages)
    return kernel(body, x=x, norm=f32(rank), table=table, token_slots=i32("n"), pages=pages)


def _each_head(heads: int, tokens: Expr, body: Callable[[Expr, Expr, Expr], None]) -> None:
    """Emit body(head, first token, tokens) in parallel, for blocks of tokens."""
    with T.parallel(T.floordiv(tokens + _TOKENS - 1, _TOKENS) * heads) as task:
        first = bind(T.floordiv(task, heads) * _TOKENS)
        body(bind(T.floormod(task, heads)), first, bind(T.min(tokens - first, _TOKENS)))


def _turn(
    rope: int, table: Expr, i: Expr, source: tuple[Expr, ...], target: tuple[Expr, ...]
) -> None:
    """Rotate the pairs from `source` (a buffer and an index) on, by token i's angles."""
    x, *x_at = source
    y, *y_at = target
    with T.serial(rope // 2) as j:
        places = ((*x_at[:-1], x_at[-1] + j * 2 + k) for k in (0, 1))
        a, b = (bind(x[place]) for place in places)
        cos, sin = bind(table[i, j]), bind(table[i, rope // 2 + j])
        for k, value in enumerate((a * cos - b * sin, b * cos + a * sin)):
            store(y, cast(str(y.dtype), value), *y_at[:-1], y_at[-1] + j * 2 + k)
