"""The likeliest tokens of the rows that want them, with their log-probabilities.

A workgroup a row, and a pass over the row for each token: the best of those that come after the one
before. Passes are counted by what the row wants, which is read-only: WebGPU allows barriers there.
"""

from __future__ import annotations

from mlcc.engine.tables import MOST_TOP_LOGPROBS, StepLayout
from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.sample.parts import NOTHING
from mlcc_compiler.kernels.gpu.sample.row import NO_INDEX, Row
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, launch, real, when
from mlcc_compiler.kernels.step import Step, step_argument


def top_logprobs(gpu: Gpu, vocab: int, layout: StepLayout) -> PrimFunc:
    """(logits f32[r, vocab], step) -> (tokens i32[r, 20], logprobs f32[r, 20]), the likeliest
    first, of equals the lowest token first; -1 and 0 beyond what a row wants.

    NaN logits and -inf are nobody's wish: where a row has nothing else left, -1 and 0 too.
    """
    most = MOST_TOP_LOGPROBS

    def body(logits: Expr, words: Expr, tokens: Expr, logprobs: Expr) -> None:
        step = Step(layout, words)
        with (
            launch((logits.shape[0],), (gpu.threads,)) as (i, thread),
            when(i < step.count("rows")),
        ):
            wanted = bind(T.min(step.row(i, "top_logprobs"), most))
            with when(tirx.all(thread >= wanted, thread < most)):
                store(tokens, T.int32(-1), i, thread)
                store(logprobs, real(0), i, thread)
            with when(step.row(i, "top_logprobs") > 0):
                _emit(Row(gpu, logits, step, i, thread), wanted, tokens, logprobs)

    outputs = {"tokens": i32("r", most), "logprobs": f32("r", most)}
    return kernel(body, logits=f32("r", vocab), step=step_argument(layout), **outputs)


def _emit(row: Row, wanted: Expr, tokens: Expr, logprobs: Expr) -> None:
    last_key, last_index = Local(1, "uint32"), Local(1, "int32")
    last_key[0], last_index[0] = T.uint32(0xFFFFFFFF), T.int32(-1)
    key, index = Local(1, "uint32"), Local(1, "int32")
    shift = bind(row.top + T.log(row.total))

    def look(i: Expr, _: Expr, k: Expr) -> None:
        behind = tirx.any(k < last_key[0], tirx.all(k == last_key[0], i > last_index[0]))
        with when(tirx.all(k > key[0], behind)):
            key[0], index[0] = k, i

    with T.serial(wanted) as j:
        key[0], index[0] = T.uint32(NOTHING), T.int32(NO_INDEX)
        with row.blocks(T.int32(0), T.int32(row.vocab)) as each:
            each(look)
        last_key[0], last_index[0] = row.best_of(key[0], index[0])
        with when(row.thread == 0):
            found = bind(T.Select(last_key[0] > T.uint32(NOTHING), T.int32(1), T.int32(0)))
            token = bind(T.Select(found > 0, last_index[0], T.int32(-1)))
            x = row.logits[row.row, T.max(token, 0)] - shift
            store(tokens, token, row.row, int32(j))
            store(logprobs, T.Select(found > 0, x, real(0)), row.row, int32(j))
