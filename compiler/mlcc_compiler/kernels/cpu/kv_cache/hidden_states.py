"""Hidden states that stay on the device between two steps, for a multi-token-prediction layer. They
are the last rows of the embeddings, one for each token that a step may have.
"""

from __future__ import annotations

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.parallel import each_row
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, fit_lanes, span, spread
from mlcc_compiler.kernels.frame import (
    Expr,
    PrimFunc,
    Sizes,
    activations,
    f32,
    i32,
    kernel,
    store,
)
from mlcc_compiler.kernels.step import Step, step_argument


def keep_hidden(isa: Isa, layout: StepLayout, width: int, whole: int) -> PrimFunc:
    """(x f32[n, width], rows i32[r], kept f32[n, width], embeddings f32[slots, whole]) ->
    embeddings, in place, with `kept` in its last rows, and f32[r, width], rows of x."""
    lanes = fit_lanes(width, isa.lanes)

    def body(x: Expr, rows: Expr, kept: Expr, embeddings: Expr, out: Expr) -> None:
        first = T.Cast("int64", embeddings.shape[0]) - layout.max_tokens

        def keep(i: Expr) -> None:
            with T.serial(width // lanes) as j:
                columns = span(j * lanes, lanes)
                store(embeddings, kept[i, columns], first + i, columns)

        each_row(x.shape[0], width, keep)
        with T.serial(rows.shape[0]) as i:
            source = bind(T.Cast("int64", rows[i]))
            with T.serial(width // lanes) as j:
                columns = span(j * lanes, lanes)
                store(out, x[source, columns], i, columns)

    return kernel(
        body,
        x=activations(isa, "n", width),
        rows=i32("r"),
        kept=activations(isa, "n", width),
        embeddings=f32("slots", whole),
        out=activations(isa, "r", width),
    )


def spread_logits(isa: Isa, known: Sizes, vocabulary: Sizes, least: float) -> PrimFunc:
    """(logits f32[r, d], rows f32[vocab]) -> f32[r, vocab]: the column of each token, or least."""
    (count,), (tokens,) = known, vocabulary

    def body(logits: Expr, rows: Expr, out: Expr) -> None:
        with T.serial(logits.shape[0]) as r, T.parallel(tokens) as t:
            column = bind(T.Cast("int64", rows[t]))
            found = logits[r, T.max(T.min(column, T.int64(count - 1)), T.int64(0))]
            store(out, T.if_then_else(column >= 0, found, T.float32(least)), r, t)

    return kernel(body, logits=f32("r", count), rows=f32(tokens), out=f32("r", tokens))


def hidden_states(isa: Isa, layout: StepLayout, width: int, whole: int) -> PrimFunc:
    """(step, ids i32[n], embeddings f32[slots, whole]) -> f32[n, width]: the kept row that the step
    names for each token, or zeros."""
    lanes = fit_lanes(width, isa.lanes)

    def body(words: Expr, ids: Expr, embeddings: Expr, out: Expr) -> None:
        step = Step(layout, words)
        count = step.count("tokens")
        first = T.Cast("int64", embeddings.shape[0]) - layout.max_tokens

        def row(i: Expr) -> None:
            named = bind(T.if_then_else(i < count, step.token(i, "hidden_row"), T.int32(-1)))
            with T.serial(width // lanes) as j:
                columns = span(j * lanes, lanes)
                with T.If(named >= 0):
                    with T.Then():
                        at = first + T.Cast("int64", named)
                        store(out, embeddings[at, columns], i, columns)
                    with T.Else():
                        store(out, spread(0.0, lanes), i, columns)

        each_row(ids.shape[0], width, row)

    return kernel(
        body,
        step=step_argument(layout),
        ids=i32("n"),
        embeddings=f32("slots", whole),
        out=activations(isa, "n", width),
    )
