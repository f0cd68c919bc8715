"""The likeliest tokens of the rows that want them, with their log-probabilities."""

from mlcc.engine.tables import MOST_TOP_LOGPROBS, StepLayout
from mlcc_compiler._tvm import T
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.logits import LogitsRow, number
from mlcc_compiler.kernels.cpu.vector_math import Registers, bind, exp, spread
from mlcc_compiler.kernels.frame import Expr, PrimFunc, f32, i32, kernel, store
from mlcc_compiler.kernels.step import Step, step_argument


def top_logprobs(isa: Isa, vocab: int, layout: StepLayout) -> PrimFunc:
    """(logits f32[r, vocab], step) -> (tokens i32[r, 20], logprobs f32[r, 20]), the likeliest
    first, of equals the lowest token first; -1 and 0 beyond what a row wants.

    NaN logits and -inf are nobody's wish: where a row has nothing else left, -1 and 0 too.
    """

    def body(logits: Expr, words: Expr, tokens: Expr, logprobs: Expr) -> None:
        step = Step(layout, words)
        with T.parallel(logits.shape[0]) as row, T.If(row < step.count("rows")), T.Then():
            wanted = bind(T.min(step.row(row, "top_logprobs"), MOST_TOP_LOGPROBS))
            with T.serial(MOST_TOP_LOGPROBS) as k:
                store(tokens, T.int32(-1), row, k)
                store(logprobs, T.float32(0), row, k)
            with T.If(wanted > 0), T.Then():
                _emit(LogitsRow(vocab, isa.lanes, logits, row), wanted, tokens, logprobs)

    most = MOST_TOP_LOGPROBS
    outputs = {"tokens": i32("r", most), "logprobs": f32("r", most)}
    return kernel(body, logits=f32("r", vocab), step=step_argument(layout), **outputs)


def _emit(row: LogitsRow, wanted: Expr, tokens: Expr, logprobs: Expr) -> None:
    """The best so far are kept in order, logits in the place of log-probabilities."""
    top, _ = row.argmax()
    (total,) = row.sums(1, lambda i, k: [number(exp(row.x(i, k) - spread(top, k)))])
    size, place, least = Registers(1, 1, "int32"), Registers(1, 1, "int32"), Registers(1, 1)
    size[0], least[0] = T.int32(0), -T.infinity("float32")
    with T.serial(row.vocab) as i:
        x = bind(row.x(i, 1))
        with T.If(x > least[0]), T.Then():
            size[0] = T.min(size[0] + 1, wanted)
            place[0] = size[0] - 1
            with T.While(T.And(place[0] > 0, x > logprobs[row.row, T.max(place[0] - 1, 0)])):
                store(logprobs, logprobs[row.row, place[0] - 1], row.row, place[0])
                store(tokens, tokens[row.row, place[0] - 1], row.row, place[0])
                place[0] = place[0] - 1
            store(logprobs, x, row.row, place[0])
            store(tokens, T.Cast("int32", i), row.row, place[0])
            with T.If(size[0] == wanted), T.Then():
                least[0] = logprobs[row.row, wanted - 1]
    shift = bind(top + T.Cast("float32", T.log(total)))
    with T.serial(size[0]) as k:
        store(logprobs, logprobs[row.row, k] - shift, row.row, k)
