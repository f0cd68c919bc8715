"""Logits processors on the GPU: penalties, biases and masks, in place, before sampling
(`mlcc.engine.batch.adjust_tables`).

Three launches, as one may write what the next reads. In each a logit is written by one thread: a
history and a list of biases name a token once, and the token in flight, if its row's history does
not list it, is handled by the first thread.
"""

from __future__ import annotations

from mlcc.engine.batch.adjust_tables import MASK_BITS, AdjustLayout
from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.adjustments import (
    MINUS_INFINITY,
    AdjustmentTables,
    adjustments_argument,
    penalised,
)
from mlcc_compiler.kernels.frame import Expr, PrimFunc, f32, i32, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    bind,
    ceil_div,
    int32,
    largest,
    launch,
    real,
    reduce,
    when,
)


def adjust(gpu: Gpu, layout: AdjustLayout) -> PrimFunc:
    """(logits f32[r, vocab], adjustments, last_sampled i32[m]) -> logits, in place.

    A workgroup a row, except for masks. The result of penalties and biases on -inf is
    device-dependent.
    """

    def body(logits: Expr, words: Expr, last: Expr) -> None:
        tables = AdjustmentTables(layout, words)
        rows, threads = logits.shape[0], (gpu.threads,)
        with launch((rows,), threads) as (i, thread), when(i < tables.count):
            _penalties(gpu, logits, tables, last, i, thread)
        with launch((rows,), threads) as (i, thread), when(i < tables.count):
            _biases(gpu, logits, tables, i, thread)
        blocks = (ceil_div(layout.vocab_size, gpu.threads), rows)
        with launch(blocks, threads) as (block, i, thread), when(i < tables.count):
            token = bind(block * gpu.threads + thread)
            with when(tirx.all(tables.row(i, "mask") > 0, token < layout.vocab_size)):
                _mask(logits, tables, i, token)
        if layout.first_timestamp:
            with launch((rows,), threads) as (i, thread):
                inside = tirx.all(i < tables.count, tables.row(i, "mask") > 0)
                _timestamps(gpu, logits, tables, i, thread, inside)

    logits = f32("r", layout.vocab_size)
    words = adjustments_argument(layout)
    return kernel(body, logits=logits, adjustments=words, last_sampled=i32("m"))


def _penalties(
    gpu: Gpu, logits: Expr, tables: AdjustmentTables, last: Expr, i: Expr, thread: Expr
) -> None:
    row, begin, count, flying = (
        bind(tables.row(i, name)) for name in ("row", "history", "history_count", "in_flight")
    )
    numbers = [bind(tables.row(i, name)) for name in ("repetition", "frequency", "presence")]
    newest, listed = Local(1, "int32"), Local(1, "int32")
    newest[0], listed[0] = T.int32(-1), T.int32(0)
    with when(flying >= 0):
        newest[0] = last[flying]

    def penalise(token: Expr, count: Expr) -> None:
        store(logits, penalised(bind(logits[row, token]), count, *numbers), row, token)

    with T.serial(ceil_div(count, gpu.threads)) as k:
        entry = bind(int32(k) * gpu.threads + thread)
        with when(entry < count):
            token = bind(tables.history(begin, entry, "token"))
            again = bind(T.Select(token == newest[0], T.int32(1), T.int32(0)))
            listed[0] = T.max(listed[0], again)
            penalise(token, bind(tables.history(begin, entry, "count") + again))
    anywhere = reduce(gpu, bind(listed[0]), largest, thread, gpu.threads)
    with when(tirx.all(thread == 0, newest[0] >= 0, anywhere == 0)):
        penalise(newest[0], T.int32(1))


def _biases(gpu: Gpu, logits: Expr, tables: AdjustmentTables, i: Expr, thread: Expr) -> None:
    row, begin, count = (bind(tables.row(i, name)) for name in ("row", "biases", "bias_count"))
    with T.serial(ceil_div(count, gpu.threads)) as k:
        entry = bind(int32(k) * gpu.threads + thread)
        with when(entry < count):
            token = bind(tables.bias(begin, entry, "token"))
            store(logits, logits[row, token] + tables.bias(begin, entry, "bias"), row, token)


def _timestamps(
    gpu: Gpu, logits: Expr, tables: AdjustmentTables, i: Expr, thread: Expr, inside: Expr
) -> None:
    """-inf for all but timestamps, if those together are likelier than each of the others. What a
    mask forbids is below every bias; all threads reach each reduction."""
    first, vocab = tables.layout.first_timestamp, tables.layout.vocab_size
    lowest, row = real(-1e19), bind(T.Select(inside, tables.row(i, "row"), 0))
    text, best, total = Local(), Local(), Local()
    text[0], best[0], total[0] = lowest, lowest, real(0.0)
    with T.serial(-(-first // gpu.threads)) as k:
        token = bind(int32(k) * gpu.threads + thread)
        with when(token < first):
            text[0] = T.max(text[0], logits[row, token])
    with T.serial(-(-(vocab - first) // gpu.threads)) as k:
        token = bind(first + int32(k) * gpu.threads + thread)
        with when(token < vocab):
            best[0] = T.max(best[0], logits[row, token])
    most = reduce(gpu, text[0], largest, thread, gpu.threads)
    top = reduce(gpu, best[0], largest, thread, gpu.threads)
    with T.serial(-(-(vocab - first) // gpu.threads)) as k:
        token = bind(first + int32(k) * gpu.threads + thread)
        with when(tirx.all(token < vocab, logits[row, token] > lowest)):
            total[0] = total[0] + tirx.exp(logits[row, token] - top)
    whole = reduce(gpu, total[0], add, thread, gpu.threads)
    wins = tirx.all(inside, top > lowest, whole > tirx.exp(T.min(most - top, real(80.0))))
    with T.serial(-(-first // gpu.threads)) as k:
        token = bind(int32(k) * gpu.threads + thread)
        with when(tirx.all(wins, token < first)):
            bits = Local(1, "uint32")  # read at run time: WGSL refuses a constant -inf
            bits[0] = T.uint32(MINUS_INFINITY)
            store(logits, T.reinterpret("float32", bits[0]), row, token)


def _mask(logits: Expr, tables: AdjustmentTables, i: Expr, token: Expr) -> None:
    """In integers: WGSL has no constant for -inf, and does not define its arithmetic."""
    row, word = bind(tables.row(i, "row")), bind(tables.mask_word(tables.row(i, "mask"), token))
    shift = T.Cast("uint32", T.floormod(token, MASK_BITS))
    allowed = T.bitwise_and(T.shift_right(word, shift), T.uint32(1)) != T.uint32(0)
    bits = T.Select(allowed, T.reinterpret("uint32", logits[row, token]), T.uint32(MINUS_INFINITY))
    store(logits, T.reinterpret("float32", bits), row, token)
