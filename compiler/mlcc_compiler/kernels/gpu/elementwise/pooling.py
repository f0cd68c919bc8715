"""Mean pooling of encoders, and arithmetic of ids."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element
from mlcc_compiler.kernels.gpu.workgroup import bind, ceil_div, int32, launch, when, zeros
from mlcc_compiler.kernels.step import Step, step_argument


def mean_rows(gpu: Gpu, layout: StepLayout, hidden: int) -> PrimFunc:
    """(x f32[n, hidden], rows i32[r], step) -> f32[r, hidden]: the mean over all tokens of the
    sequence of token rows[i], a thread for each column. Rows beyond the step's own are left
    unchanged."""

    def body(x: Expr, rows: Expr, words: Expr, out: Expr) -> None:
        step = Step(layout, words)

        def element(i: Expr, j: Expr) -> None:
            with when(i < step.count("rows")):
                s = bind(step.token(bind(rows[i]), "sequence"))
                first = bind(step.sequence(s, "first_token"))
                count = bind(step.sequence(s + 1, "first_token") - first)
                total = zeros(1)
                with T.serial(count) as t:
                    total[0] = total[0] + x[first + int32(t), j]
                store(out, total[0] / count.astype("float32"), i, j)

        each_element(gpu, rows.shape[0], hidden, element)

    return kernel(
        body,
        x=activations(gpu, "n", hidden),
        rows=i32("r"),
        step=step_argument(layout),
        out=activations(gpu, "r", hidden),
    )


def remap(gpu: Gpu, row: Sizes, add: int, divide: int, modulo: int) -> PrimFunc:
    """(ids i32[n]) -> i32[n]: (ids + add) // divide, then % modulo unless that is 0."""

    def value(id_: Expr) -> Expr:
        found = tirx.truncdiv(id_ + add, divide)
        return tirx.truncmod(found, modulo) if modulo else found

    return _each_id(gpu, value)


def replace_from(gpu: Gpu, row: Sizes, first: int, other: int) -> PrimFunc:
    """(ids i32[n]) -> i32[n]: `other` for those from `first` on."""
    return _each_id(gpu, lambda id_: T.Select(id_ < first, id_, T.int32(other)))


def _each_id(gpu: Gpu, value: Callable[[Expr], Expr]) -> PrimFunc:
    """(ids i32[n]) -> value of each, i32[n]."""

    def body(ids: Expr, out: Expr) -> None:
        count = ids.shape[0]
        with launch((ceil_div(count, gpu.threads),), (gpu.threads,)) as (block, thread):
            i = bind(block * gpu.threads + thread)
            with when(i < int32(count)):
                store(out, value(ids[i]), i)

    return kernel(body, ids=i32("n"), out=i32("n"))
