"""Hidden states that stay on the device between two steps, for a multi-token-prediction layer. They
are the last rows of the embeddings, one for each token that a step may have.
"""

from __future__ import annotations

from mlcc.engine.batch.tables import StepLayout
from mlcc_compiler.ir._tvm import T
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
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import each_element
from mlcc_compiler.kernels.gpu.workgroup import bind, int32, real
from mlcc_compiler.kernels.step import Step, step_argument


def keep_hidden(gpu: Gpu, layout: StepLayout, width: int, whole: int) -> PrimFunc:
    """(x f32[n, width], rows i32[r], kept f32[n, width], embeddings f32[slots, whole]) ->
    embeddings, in place, with `kept` in its last rows, and f32[r, width], rows of x."""

    def body(x: Expr, rows: Expr, kept: Expr, embeddings: Expr, out: Expr) -> None:
        first = int32(embeddings.shape[0]) - layout.max_tokens
        tokens = int32(x.shape[0])

        def element(i: Expr, j: Expr) -> None:
            with T.If(i < tokens):
                with T.Then():
                    store(embeddings, kept[i, j], first + i, j)
                with T.Else():
                    store(out, x[rows[i - tokens], j], i - tokens, j)

        each_element(gpu, x.shape[0] + rows.shape[0], width, element)

    return kernel(
        body,
        x=activations(gpu, "n", width),
        rows=i32("r"),
        kept=activations(gpu, "n", width),
        embeddings=f32("slots", whole),
        out=activations(gpu, "r", width),
    )


def spread_logits(gpu: Gpu, known: Sizes, vocabulary: Sizes, least: float) -> PrimFunc:
    """(logits f32[r, d], rows f32[vocab]) -> f32[r, vocab]: the column of each token, or least."""
    (count,), (tokens,) = known, vocabulary

    def body(logits: Expr, rows: Expr, out: Expr) -> None:
        def element(r: Expr, t: Expr) -> None:
            column = bind(rows[t].astype("int32"))
            found = logits[r, T.max(T.min(column, count - 1), 0)]
            store(out, T.if_then_else(column >= 0, found, real(least)), r, t)

        each_element(gpu, logits.shape[0], tokens, element)

    return kernel(body, logits=f32("r", count), rows=f32(tokens), out=f32("r", tokens))


def hidden_states(gpu: Gpu, layout: StepLayout, width: int, whole: int) -> PrimFunc:
    """(step, ids i32[n], embeddings f32[slots, whole]) -> f32[n, width]: the kept row that the step
    names for each token, or zeros."""

    def body(words: Expr, ids: Expr, embeddings: Expr, out: Expr) -> None:
        step = Step(layout, words)
        first = int32(embeddings.shape[0]) - layout.max_tokens

        def element(i: Expr, j: Expr) -> None:
            used = bind(i < step.count("tokens"))
            named = bind(T.if_then_else(used, step.token(i, "hidden_row"), T.int32(-1)))
            with T.If(named >= 0):
                with T.Then():
                    store(out, embeddings[first + named, j], i, j)
                with T.Else():
                    store(out, real(0.0), i, j)

        each_element(gpu, ids.shape[0], width, element)

    return kernel(
        body,
        step=step_argument(layout),
        ids=i32("n"),
        embeddings=f32("slots", whole),
        out=activations(gpu, "n", width),
    )
