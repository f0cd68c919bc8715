"""Mean pooling of encoders, and arithmetic of ids."""

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import Registers, bind, fit_lanes, span, spread
from mlcc_compiler.kernels.frame import Expr, PrimFunc, Sizes, activations, i32, kernel, store
from mlcc_compiler.kernels.step import Step, step_argument


def mean_rows(isa: Isa, layout: StepLayout, hidden: int) -> PrimFunc:
    """(x f32[n, hidden], rows i32[r], step) -> f32[r, hidden]: the mean over all tokens of the
    sequence of token rows[i]. Zeros beyond the step's own rows."""
    lanes = fit_lanes(hidden, isa.lanes)

    def body(x: Expr, rows: Expr, words: Expr, out: Expr) -> None:
        step = Step(layout, words)
        wanted = bind(T.Cast("int64", step.count("rows")))
        with T.parallel(rows.shape[0]) as i:
            s = bind(T.Cast("int64", step.token(T.Cast("int64", rows[i]), "sequence")))
            first = bind(T.Cast("int64", step.sequence(s, "first_token")))
            last = bind(T.Cast("int64", step.sequence(s + 1, "first_token")))
            count = bind(T.Select(i < wanted, last - first, T.int64(0)))
            factor = bind(T.float32(1) / T.Cast("float32", T.max(count, T.int64(1))))
            total = Registers(1, lanes)
            with T.serial(hidden // lanes) as j:
                at = span(j * lanes, lanes)
                total[0] = spread(0.0, lanes)
                with T.serial(count) as t:
                    total[0] = total[0] + x[first + t, at]
                store(out, total[0] * spread(factor, lanes), i, at)

    return kernel(
        body,
        x=activations(isa, "n", hidden),
        rows=i32("r"),
        step=step_argument(layout),
        out=activations(isa, "r", hidden),
    )


def remap(isa: Isa, row: Sizes, add: int, divide: int, modulo: int) -> PrimFunc:
    """(ids i32[n]) -> i32[n]: (ids + add) // divide, then % modulo unless that is 0."""

    def body(ids: Expr, out: Expr) -> None:
        with T.serial(ids.shape[0]) as i:
            found = tirx.truncdiv(ids[i] + add, divide)
            store(out, tirx.truncmod(found, modulo) if modulo else found, i)

    return kernel(body, ids=i32("n"), out=i32("n"))


def replace_from(isa: Isa, row: Sizes, first: int, other: int) -> PrimFunc:
    """(ids i32[n]) -> i32[n]: `other` for those from `first` on."""

    def body(ids: Expr, out: Expr) -> None:
        with T.serial(ids.shape[0]) as i:
            store(out, T.Select(ids[i] < first, ids[i], T.int32(other)), i)

    return kernel(body, ids=i32("n"), out=i32("n"))
