"""The likeliest tokens of the rows that want them, with their log-probabilities.

A workgroup a row, and a pass over the row for each token: the best of those that come after the one
before. Passes are counted by what the row wants, which is read-only: WebGPU allows barriers there.
"""

from __future__ import annotations

from mlcc.engine.tables import MOST_TOP_LOGPROBS, StepLayout
from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sample.parts import NOTHING
from mlcc_compiler.kernels.gpu.sample.row import NO_INDEX, RowReader
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, launch, real, when
from mlcc_compiler.kernels.step import Step
from mlcc_compiler.kernels.step_arguments import top_logprobs_arguments


def top_logprobs(gpu: Gpu, vocab: int, layout: StepLayout) -> PrimFunc:
    """The kernel of `top_logprobs_arguments`."""
    most = MOST_TOP_LOGPROBS

    def body(
        logits: Expr, words: Expr, ids: Expr, told: Expr, tokens: Expr, logprobs: Expr
    ) -> None:
        step = Step(layout, words)
        with (
            launch((logits.shape[0],), (gpu.threads,)) as (i, thread),
            when(i < step.count("rows")),
        ):
            wanted = bind(T.min(step.row(i, "top_logprobs"), most))
            with when(tirx.all(thread >= wanted, thread < most)):
                store(tokens, T.int32(-1), i, thread)
                store(logprobs, real(0), i, thread)
            row = RowReader(gpu, logits, i, thread)
            last_key, last = Local(1, "uint32"), Local(1, "int32")
            last_key[0], last[0] = T.uint32(0xFFFFFFFF), T.int32(-1)
            with T.serial(wanted) as j:
                last_key[0], last[0] = _next(row, last_key[0], last[0])
                with when(thread == 0):
                    found = bind(last_key[0]) > T.uint32(NOTHING)
                    store(tokens, T.Select(found, last[0], T.int32(-1)), i, int32(j))
                    x = logits[i, T.Select(found, last[0], 0)] - logits[i, ids[i]] + told[i]
                    store(logprobs, T.Select(found, x, real(0)), i, int32(j))

    return kernel(body, **top_logprobs_arguments(vocab, layout))


def _next(row: RowReader, last_key: Expr, last: Expr) -> tuple[Expr, Expr]:
    """(image, index) of the best logit behind the last one found."""
    key, index = Local(1, "uint32"), Local(1, "int32")
    key[0], index[0] = T.uint32(NOTHING), T.int32(NO_INDEX)

    def look(i: Expr, _: Expr, k: Expr) -> None:
        behind = tirx.any(k < last_key, tirx.all(k == last_key, i > last))
        with when(tirx.all(k > key[0], behind)):
            key[0], index[0] = k, i

    with row.blocks(T.int32(0), T.int32(row.vocab)) as each:
        each(look)
    return row.best_of(bind(key[0]), index[0])
