"""Access to the adjustments table (`mlcc.engine.batch.adjust_tables`) in kernels, and the
arithmetic of penalties, shared by all devices.
"""

from __future__ import annotations

from mlcc.engine.batch.adjust_tables import BIASES, FLOATS, HISTORY, MASK_BITS, AdjustLayout
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Argument, Expr, i32

MINUS_INFINITY = 0xFF800000
"""The bits of -inf."""


def adjustments_argument(layout: AdjustLayout) -> Argument:
    """The whole table, as every kernel takes it: int32[layout.words]."""
    return i32(layout.words)


class AdjustmentTables:
    """The table's columns as expressions; int32 or float32 values."""

    def __init__(self, layout: AdjustLayout, words: Expr) -> None:
        self.layout, self.words = layout, words

    @property
    def count(self) -> Expr:
        """Number of adjusted rows."""
        return self.words[self.layout.header.at("rows")]

    def row(self, i: Expr, column: str) -> Expr:
        """A column of the i-th adjusted row."""
        table = self.layout.rows
        return _value(self.words[i * table.width + table.at(column)], column)

    def history(self, begin: Expr, i: Expr, column: str) -> Expr:
        """A column of entry i of the history that begins at word `begin`."""
        at = begin + i * len(HISTORY) + HISTORY.index(column)
        return _value(self.words[at], column)

    def bias(self, begin: Expr, i: Expr, column: str) -> Expr:
        """A column of entry i of the biases that begin at word `begin`."""
        return _value(self.words[begin + i * len(BIASES) + BIASES.index(column)], column)

    def mask_word(self, begin: Expr, token: Expr) -> Expr:
        """The word of a mask that holds a token's bit, as uint32."""
        return T.reinterpret("uint32", self.words[begin + T.floordiv(token, MASK_BITS)])


def penalised(x: Expr, count: Expr, repetition: Expr, frequency: Expr, presence: Expr) -> Expr:
    """The logit of a token that was sampled `count` times; 0 = it occurs in the prompt only."""
    repeated = T.Select(x > T.float32(0), x / repetition, x * repetition)
    once = T.Select(count > 0, presence, T.float32(0))
    return repeated - frequency * T.Cast("float32", count) - once


def _value(word: Expr, column: str) -> Expr:
    return T.reinterpret("float32", word) if column in FLOATS else word
