"""LoRA on the CPU (Hu et al., 2021), with any mix of adapters and ranks in one step: x times the
slot's A, then times its B. As in Punica (Chen et al., 2023), each token reads its own matrices.
f32. A token without an adapter costs one check.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.lora import LoraShape
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind, each, span, spread, sum_lanes
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.lora_arguments import expand_arguments, shrink_arguments
from mlcc_compiler.kernels.step import Step

_UNROLL = 4  # vectors at a time: independent sums, and whole lines of B


def adapt_shrink(isa: Isa, shape: LoraShape) -> PrimFunc:
    """The kernel of `shrink_arguments`."""
    parts = len(shape.outputs)

    def body(x: Expr, a: Expr, words: Expr, out: Expr) -> None:
        with T.parallel(x.shape[0] * parts) as task:
            i, part = bind(T.floordiv(task, parts)), bind(T.floormod(task, parts))
            with _adapted(shape, words, i) as (slot, rank), T.serial(rank) as r:
                row = bind(T.Cast("int64", part * shape.rank + r))
                store(out, _dot(isa, x, a, shape.inputs, i, (slot, row)), i, row)

    return kernel(body, **shrink_arguments(isa, shape))


def adapt_expand(isa: Isa, shape: LoraShape) -> PrimFunc:
    """The kernel of `expand_arguments`."""

    def body(y: Expr, small: Expr, b: Expr, words: Expr, out: Expr) -> None:
        def add(i: Expr, part: int, at: Expr, lanes: int, count: int) -> None:
            sums = Registers(count, lanes)
            places = [span(at + u * lanes, lanes) for u in range(count)]
            for u, place in enumerate(places):
                sums[u] = y[i, place]
            with _adapted(shape, words, i) as (slot, rank), T.serial(rank) as r:
                factor = spread(bind(small[i, part * shape.rank + r]), lanes)
                for u, place in enumerate(places):
                    sums[u] = sums[u] + factor * b[slot, r, place]
            for u, place in enumerate(places):
                store(out, sums[u], i, place)

        with T.parallel(y.shape[0]) as i:
            for part, (start, size) in enumerate(
                zip(shape.module_columns, shape.outputs, strict=True)
            ):
                block = _UNROLL * isa.lanes
                with T.serial(size // block) as j:
                    add(i, part, start + j * block, isa.lanes, _UNROLL)
                rest = size // block * block

                def tail(at: Expr, lanes: int, part: int = part) -> None:
                    add(i, part, at, lanes, 1)

                each(size - rest, isa.lanes, tail, start + rest)

    return kernel(body, **expand_arguments(isa, shape))


@contextmanager
def _adapted(shape: LoraShape, words: Expr, i: Expr) -> Iterator[tuple[Expr, Expr]]:
    """Condition for tokens whose sequence has an adapter: yields its slot and rank, int64."""
    step = Step(shape.layout, words)
    with T.If(i < T.Cast("int64", step.count("tokens"))), T.Then():
        owner = bind(T.Cast("int64", step.token(i, "sequence")))
        slot = bind(T.Cast("int64", step.sequence(owner, "adapter")))
        rank = bind(T.Cast("int64", step.sequence(owner, "adapter_rank")))
        with T.If(slot >= 0), T.Then():
            yield slot, rank


def _dot(isa: Isa, x: Expr, a: Expr, size: int, i: Expr, row: tuple[Expr, Expr]) -> Expr:
    """Emit the product of a row of x with one of a slot."""
    lanes = isa.lanes
    steps, rest = divmod(size, lanes)
    blocks, tail = divmod(steps, _UNROLL)
    sums, total = Registers(_UNROLL, lanes), Registers(1, 1)

    def add(first: Expr, count: int) -> None:
        for u in range(count):
            at = span((first + u) * lanes, lanes)
            sums[u] = sums[u] + x[i, at] * a[row[0], row[1], at]

    for u in range(_UNROLL):
        sums[u] = spread(0.0, lanes)
    with T.serial(blocks) as j:
        add(j * _UNROLL, _UNROLL)
    add(blocks * _UNROLL, tail)
    total[0] = sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]))
    with T.serial(rest) as j:
        at = steps * lanes + j
        total[0] = total[0] + x[i, at] * a[row[0], row[1], at]
    return total[0]
