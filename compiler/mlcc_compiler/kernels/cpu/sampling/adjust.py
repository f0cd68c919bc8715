"""Logits processors on the CPU: penalties, biases and masks, in place, before sampling
(`mlcc.engine.batch.adjust_tables`).
"""

from mlcc.engine.batch.adjust_tables import MASK_BITS, AdjustLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.adjustments import (
    MINUS_INFINITY,
    AdjustmentTables,
    adjustments_argument,
    penalised,
)
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    exp_falling,
    log,
    max_lanes,
    maximum,
    span,
    spread,
)
from mlcc_compiler.kernels.frame import Expr, PrimFunc, f32, i32, kernel, store


def adjust(isa: Isa, layout: AdjustLayout) -> PrimFunc:
    """(logits f32[r, vocab], adjustments, last_sampled i32[m]) -> logits, in place.

    One thread per row. -inf stays -inf under penalties and biases.
    """

    def body(logits: Expr, words: Expr, last: Expr) -> None:
        tables = AdjustmentTables(layout, words)
        with T.parallel(logits.shape[0]) as i, T.If(i < tables.count), T.Then():
            row = bind(tables.row(i, "row"))
            _penalties(logits, tables, last, i, row)
            _biases(logits, tables, i, row)
            _mask(logits, tables, i, row, min(isa.lanes, MASK_BITS))
            if layout.first_timestamp:
                with T.If(tables.row(i, "mask") > 0), T.Then():
                    _timestamps(logits, layout, row, isa.lanes)

    logits = f32("r", layout.vocab_size)
    words = adjustments_argument(layout)
    return kernel(body, logits=logits, adjustments=words, last_sampled=i32("m"))


def _penalties(logits: Expr, tables: AdjustmentTables, last: Expr, i: Expr, row: Expr) -> None:
    begin = bind(tables.row(i, "history"))
    flying, listed = bind(tables.row(i, "in_flight")), Registers(1, 1, "int32")
    numbers = [bind(tables.row(i, name)) for name in ("repetition", "frequency", "presence")]
    newest = Registers(1, 1, "int32")
    newest[0], listed[0] = T.int32(-1), T.int32(0)
    with T.If(flying >= 0), T.Then():
        newest[0] = last[flying]
    with T.serial(tables.row(i, "history_count")) as entry:
        token = bind(tables.history(begin, entry, "token"))
        again = bind(T.Select(token == newest[0], T.int32(1), T.int32(0)))
        listed[0] = T.max(listed[0], again)
        count = tables.history(begin, entry, "count") + again
        store(logits, penalised(bind(logits[row, token]), count, *numbers), row, token)
    with T.If(T.And(newest[0] >= 0, listed[0] == 0)), T.Then():
        x = bind(logits[row, newest[0]])
        store(logits, penalised(x, T.int32(1), *numbers), row, newest[0])


def _biases(logits: Expr, tables: AdjustmentTables, i: Expr, row: Expr) -> None:
    begin = bind(tables.row(i, "biases"))
    with T.serial(tables.row(i, "bias_count")) as entry:
        token = bind(tables.bias(begin, entry, "token"))
        store(logits, logits[row, token] + tables.bias(begin, entry, "bias"), row, token)


def _mask(logits: Expr, tables: AdjustmentTables, i: Expr, row: Expr, lanes: int) -> None:
    begin = bind(tables.row(i, "mask"))
    vocab = tables.layout.vocab_size
    whole = vocab // lanes
    with T.If(begin > 0), T.Then():
        with T.serial(whole) as j:
            _forbid(logits, tables, begin, row, j * lanes, lanes)
        with T.serial(vocab - whole * lanes) as j:
            _forbid(logits, tables, begin, row, whole * lanes + j, 1)


def _timestamps(logits: Expr, layout: AdjustLayout, row: Expr, lanes: int) -> None:
    """-inf for all but timestamps, if those together are likelier than each of the others."""
    first, vocab = layout.first_timestamp, layout.vocab_size
    none = T.reinterpret("float32", T.uint32(MINUS_INFINITY))
    wide, text, best, total = Registers(1, lanes), Registers(1, 1), Registers(1, 1), Registers(1, 1)
    wide[0], text[0], best[0] = spread(none, lanes), none, none
    total[0] = T.float32(0)
    with T.serial(first // lanes) as j:
        wide[0] = maximum(logits[row, span(j * lanes, lanes)], wide[0])
    text[0] = max_lanes(wide[0])
    with T.serial(first % lanes) as j:
        text[0] = maximum(logits[row, first // lanes * lanes + j], text[0])
    with T.serial(vocab - first) as j:
        best[0] = maximum(logits[row, first + j], best[0])
    with T.If(best[0] > T.float32(-1e19)), T.Then():  # else none is allowed
        with T.serial(vocab - first) as j:
            total[0] = total[0] + exp_falling(logits[row, first + j] - best[0])
        with T.If(best[0] + log(total[0]) > text[0]), T.Then(), T.serial(first) as j:
            store(logits, none, row, j)


def _forbid(
    logits: Expr, tables: AdjustmentTables, begin: Expr, row: Expr, first: Expr, lanes: int
) -> None:
    """-inf for those of `lanes` tokens of one mask word whose bit is 0."""
    word = bind(tables.mask_word(begin, first))
    shift = T.Cast("uint32", T.floormod(first, MASK_BITS))
    bits = T.Ramp(shift, T.uint32(1), lanes) if lanes > 1 else shift
    allowed = T.bitwise_and(T.shift_right(spread(word, lanes), bits), spread(T.uint32(1), lanes))
    at = span(first, lanes)
    none = spread(T.reinterpret("float32", T.uint32(MINUS_INFINITY)), lanes)
    kept = T.Select(allowed != spread(T.uint32(0), lanes), logits[row, at], none)
    store(logits, kept, row, at)
