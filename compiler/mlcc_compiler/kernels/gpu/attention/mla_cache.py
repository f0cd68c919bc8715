"""Kernels around latent attention (`mlcc_compiler.ir.mla`) on the GPU: the products with each
head's part of kv_b_proj, and the append, which normalises and rotates. The attention is
`attention/latent.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.mla import MlaLayout, MlaShape
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
from mlcc_compiler.kernels.gpu.attention.sequences import split, strided
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.norm import each_lane, row_factor
from mlcc_compiler.kernels.gpu.kv_cache.append import stored
from mlcc_compiler.kernels.gpu.workgroup import (
    barrier,
    bind,
    ceil_div,
    int32,
    launch,
    real,
    shared,
    when,
    zeros,
)

_TOKENS = 4  # that a thread multiplies with each weight it reads
_LANES = 32  # threads that share a row of weights


def latent_query(gpu: Gpu, shape: MlaShape) -> PrimFunc:
    """(q f32[n, heads, nope + rope], weight, table f32[n, rope]) -> f32[n, heads, rank + rope]: the
    query for latents, then the rotated rest of q."""
    nope, rank, each, columns = shape.nope, shape.rank, shape.nope + shape.value, shape.width
    blocks = ceil_div(columns, gpu.threads)

    def body(q: Expr, w: Expr, angles: Expr, out: Expr) -> None:
        grid = (shape.heads * blocks, ceil_div(q.shape[0], _TOKENS))
        with launch(grid, (gpu.threads,)) as (part, tile, thread):
            h, block = split(part, blocks)
            tokens, inside = _tokens(q, tile)
            queries = shared((_TOKENS, nope))

            def query(d: Expr) -> None:
                for t, i in enumerate(tokens):
                    store(queries, q[i, h, d], t, d)

            strided(nope, gpu.threads, thread, query)
            barrier()
            c = bind(block * gpu.threads + thread)
            with T.If(c < rank):
                with T.Then():
                    sums = zeros(_TOKENS)
                    with T.serial(nope) as d:
                        factor = bind(w[h * each + int32(d), c])
                        for t in range(_TOKENS):
                            sums[t] = sums[t] + queries[t, d] * factor
                    for t, i in enumerate(tokens):
                        with when(inside[t]):
                            store(out, sums[t], i, h, c)
                with T.Else(), when(c < columns):
                    for t, i in enumerate(tokens):

                        def value(d: Expr, i: Expr = i) -> Expr:
                            return q[i, h, nope + d]

                        turned = _turned(value, angles, i, c - rank)
                        with when(inside[t]):
                            store(out, turned, i, h, c)

    q = activations(gpu, "n", shape.heads, nope + shape.rope)
    out = activations(gpu, "n", shape.heads, columns)
    return kernel(body, q=q, weight=f32(*shape.weight), table=f32("n", shape.rope), out=out)


def latent_value(gpu: Gpu, shape: MlaShape) -> PrimFunc:
    """(x f32[n, heads, rank], weight) -> f32[n, heads, value]: each head's values from weighted
    sums of latents. A team of threads takes a row of weights."""
    rank, width, each = shape.rank, shape.value, shape.nope + shape.value
    teams = gpu.threads // _LANES
    blocks = ceil_div(width, teams)

    def body(x: Expr, w: Expr, out: Expr) -> None:
        grid = (shape.heads * blocks, ceil_div(x.shape[0], _TOKENS))
        with launch(grid, (_LANES, teams)) as (part, tile, lane, team):
            h, block = split(part, blocks)
            tokens, _ = _tokens(x, tile)
            v = bind(block * teams + team)
            at = bind(h * each + shape.nope + T.min(v, width - 1))
            sums = zeros(_TOKENS)

            def add(d: Expr) -> None:
                value = bind(w[at, d])
                for t, i in enumerate(tokens):
                    sums[t] = sums[t] + x[i, h, d] * value

            each_lane(rank, _LANES, lane, add)
            cells = shared((_TOKENS * teams, _LANES + 1))
            for t in range(_TOKENS):
                store(cells, sums[t], t * teams + team, lane)
            barrier()

            def finish(cell: Expr) -> None:
                t, own = split(cell, teams)
                total = zeros(1)
                with T.serial(_LANES) as k:
                    total[0] = total[0] + cells[cell, k]
                i, v = bind(tile * _TOKENS + t), bind(block * teams + own)
                with when(T.And(i < int32(x.shape[0]), v < width)):
                    store(out, total[0], i, h, v)

            strided(_TOKENS * teams, gpu.threads, bind(team * _LANES + lane), finish)

    x, out = (activations(gpu, "n", shape.heads, size) for size in (rank, width))
    return kernel(body, x=x, weight=f32(*shape.weight), out=out)


def append_latent(gpu: Gpu, layout: MlaLayout) -> PrimFunc:
    """(x f32[n, rank + rope], norm f32[rank], table f32[n, rope], token_slots i32[n], pages) ->
    pages, in place: x's latent normalised and its key rotated. A workgroup per token.

    Token i goes to page slot // page_size at offset slot % page_size; slot -1 writes nothing.
    """
    rank, rope = layout.shape.rank, layout.shape.rope

    def body(x: Expr, norm: Expr, table: Expr, slots: Expr, pages: Expr) -> None:
        with launch((slots.shape[0],), (gpu.threads,)) as (i, lane):
            eps = layout.shape.eps
            factor = row_factor(gpu, lambda j: x[i, j], rank, eps, lane, gpu.threads)
            slot = bind(slots[i])
            with when(slot >= 0):
                page, offset = split(slot, layout.page_size)

                def write(value: Expr, d: Expr) -> None:
                    store(pages, stored(value, layout.dtype), page, offset, d)

                def turn(d: Expr) -> None:
                    write(_turned(lambda at: x[i, rank + at], table, i, d), rank + d)

                each_lane(rank, gpu.threads, lane, lambda j: write(x[i, j] * factor * norm[j], j))
                each_lane(rope, gpu.threads, lane, turn)

    x, table = activations(gpu, "n", layout.shape.width), f32("n", rope)
    pages = tensor_argument(layout.pages)
    return kernel(body, x=x, norm=f32(rank), table=table, token_slots=i32("n"), pages=pages)


def _tokens(x: Expr, tile: Expr) -> tuple[list[Expr], list[Expr]]:
    """The tokens of a tile, clamped to the last, and whether each exists."""
    each = [bind(tile * _TOKENS + t) for t in range(_TOKENS)]
    count = int32(x.shape[0])
    return [bind(T.min(i, count - 1)) for i in each], [i < count for i in each]


def _turned(value: Callable[[Expr], Expr], table: Expr, i: Expr, d: Expr) -> Expr:
    """Element d of `value`, with neighbouring pairs rotated by token i's angles."""
    half = int(table.shape[1]) // 2
    angle, odd = split(d, 2)
    sign = T.if_then_else(odd == 0, real(-1), real(1))
    partner = bind(value(bind(d + 1 - odd * 2)))
    return bind(value(d) * table[i, angle] + sign * partner * table[i, angle + half])
