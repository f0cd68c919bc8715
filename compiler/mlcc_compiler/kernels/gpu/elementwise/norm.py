"""Root-mean-square normalisation (Zhang & Sennrich, 2019): a workgroup per row; per head, a team
of threads per head. With the residual sum before it in the same kernel. And LayerNorm (Ba et al.,
2016). float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, f32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    bind,
    ceil_div,
    int32,
    launch,
    real,
    reduce,
    when,
)


def rms_norm(gpu: Gpu, row: Sizes, weight: Sizes, eps: float, offset: float) -> PrimFunc:
    """(x f32[n, size], w f32[size]) -> x * rsqrt(mean(x**2) + eps) * (offset + w).

    Of x f32[n, heads, size] each head is normalised by itself.
    """
    if len(row) == 2:
        return _rms_norm_heads(gpu, *row, eps, offset)
    (hidden,) = row

    def body(x: Expr, w: Expr, y: Expr) -> None:
        with launch((x.shape[0],), (gpu.threads,)) as (i, lane):
            factor = row_factor(gpu, lambda j: x[i, j], hidden, eps, lane, gpu.threads)
            each_lane(
                hidden,
                gpu.threads,
                lane,
                lambda j: store(y, x[i, j] * factor * (w[j] + real(offset)), i, j),
            )

    rows = activations(gpu, "n", hidden)
    return kernel(body, x=rows, w=f32(hidden), y=rows)


def add_rms_norm(
    gpu: Gpu, row: Sizes, other: Sizes, weight: Sizes, eps: float, offset: float
) -> PrimFunc:
    """(x f32[n, hidden], residual f32[n, hidden], w f32[hidden]) -> (x + residual, its norm)."""
    (hidden,) = row

    def body(x: Expr, residual: Expr, w: Expr, total: Expr, y: Expr) -> None:
        with launch((x.shape[0],), (gpu.threads,)) as (i, lane):

            def load(j: Expr) -> Expr:
                summed = bind(x[i, j] + residual[i, j])
                store(total, summed, i, j)
                return summed

            factor = row_factor(gpu, load, hidden, eps, lane, gpu.threads)
            # each thread reads back what it wrote itself, so no barrier is needed
            each_lane(
                hidden,
                gpu.threads,
                lane,
                lambda j: store(y, total[i, j] * factor * (w[j] + real(offset)), i, j),
            )

    rows = activations(gpu, "n", hidden)
    return kernel(body, x=rows, residual=rows, w=f32(hidden), total=rows, y=rows)


def layer_norm(gpu: Gpu, row: Sizes, weight: Sizes, *rest: Any) -> PrimFunc:
    """(x f32[n, size], w f32[size], optional bias f32[size]) -> (x - mean(x)) * rsqrt(variance(x) +
    eps) * (offset + w) + bias. rest: the bias's sizes if any, eps, offset."""
    *bias, eps, offset = rest
    (size,) = row

    def body(x: Expr, w: Expr, *others: Expr) -> None:
        *b, y = others
        with launch((x.shape[0],), (gpu.threads,)) as (i, lane):
            mean = row_mean(gpu, lambda j: x[i, j], size, lane, gpu.threads)

            def centred(j: Expr) -> Expr:
                return x[i, j] - mean

            factor = row_factor(gpu, centred, size, eps, lane, gpu.threads)

            def write(j: Expr) -> None:
                value = centred(j) * factor * (w[j] + real(offset))
                store(y, value + b[0][j] if b else value, i, j)

            each_lane(size, gpu.threads, lane, write)

    rows = activations(gpu, "n", size)
    biases = {"b": f32(size)} if bias else {}
    return kernel(body, x=rows, w=f32(size), **biases, y=rows)


def _rms_norm_heads(gpu: Gpu, heads: int, head_dim: int, eps: float, offset: float) -> PrimFunc:
    lanes = 32
    teams = gpu.threads // lanes

    def body(x: Expr, w: Expr, y: Expr) -> None:
        count = int32(x.shape[0]) * heads
        with launch((ceil_div(x.shape[0] * heads, teams),), (lanes, teams)) as (block, lane, team):
            task = bind(block * teams + team)
            inside = task < count
            i, h = bind(T.min(task, count - 1) // heads), bind(task % heads)
            factor = row_factor(gpu, lambda j: x[i, h, j], head_dim, eps, lane, lanes, team, teams)
            with when(inside):
                each_lane(
                    head_dim,
                    lanes,
                    lane,
                    lambda j: store(y, x[i, h, j] * factor * (w[j] + real(offset)), i, h, j),
                )

    rows = activations(gpu, "n", heads, head_dim)
    return kernel(body, x=rows, w=f32(head_dim), y=rows)


def row_factor(
    gpu: Gpu,
    load: Callable[[Expr], Expr],
    size: int,
    eps: float,
    lane: Expr,
    lanes: int,
    team: Expr = 0,
    teams: int = 1,
) -> Expr:
    """Emit rsqrt(mean(load(j) ** 2) + eps) over `size` elements distributed to `lanes` threads."""

    def square(j: Expr) -> Expr:
        value = bind(load(j))
        return value * value

    mean = row_mean(gpu, square, size, lane, lanes, team, teams)
    return bind(real(1) / T.sqrt(mean + real(eps)))


def row_mean(
    gpu: Gpu,
    load: Callable[[Expr], Expr],
    size: int,
    lane: Expr,
    lanes: int,
    team: Expr = 0,
    teams: int = 1,
) -> Expr:
    """Emit mean(load(j)) over `size` elements distributed to `lanes` threads."""
    total = Local()
    total[0] = real(0)

    def take(j: Expr) -> None:
        total[0] = total[0] + load(j)

    each_lane(size, lanes, lane, take)
    return bind(reduce(gpu, total[0], add, lane, lanes, team, teams) * real(1 / size))


def each_lane(size: int, lanes: int, lane: Expr, body: Callable[[Expr], None]) -> None:
    """Emit body(j) for this lane's part of `size` elements; neighbouring lanes take neighbouring
    elements."""
    with T.serial(ceil_div(size, lanes)) as k:
        j = int32(k) * lanes + lane
        if size % lanes:
            with when(j < size):
                body(j)
        else:
            body(j)
