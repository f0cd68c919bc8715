"""How kernels read a step: the columns of `mlcc.engine.batch.tables` as expressions over its words.

Of no device: both sets of kernels use it. It says where a value lies, not what is done with it.
"""

from __future__ import annotations

from mlcc.engine.batch.tables import FLOATS, StepLayout, Table
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Argument, Expr, i32


def step_argument(layout: StepLayout) -> Argument:
    """The whole step, as every kernel takes it: int32[layout.words]."""
    return i32(layout.words)


class Step:
    """A step in a kernel. Entries are counted by int32 or int64; values are int32 or float32."""

    def __init__(self, layout: StepLayout, words: Expr) -> None:
        self.layout, self.words = layout, words

    def count(self, name: str) -> Expr:
        """A number of the header: tokens, sequences, rows or copies.

        It is the real one; the shape argument, by which arrays are sized and grids are laid out,
        may be larger, and nobody reads what lies beyond it.
        """
        return self.words[self.layout.header.at(name)]

    def token(self, i: Expr, column: str) -> Expr:
        """A column of token i."""
        return self._value(self.layout.tokens, i, column)

    def row(self, i: Expr, column: str) -> Expr:
        """A column of row i; float32 for those that are kept by their bits."""
        return self._value(self.layout.rows, i, column)

    def sequence(self, s: Expr, column: str) -> Expr:
        """A column of sequence s; CSR columns have an entry behind the last sequence."""
        return self._value(self.layout.sequences, s, column)

    def copy(self, i: Expr, column: str) -> Expr:
        """A column of copy i."""
        return self._value(self.layout.copies, i, column)

    def pages_begin(self, group: int) -> Expr:
        """The word at which the page list of a group begins; `page` takes it."""
        return self.words[self.layout.header.at(f"pages.{group}")]

    def page(self, begin: Expr, i: Expr) -> Expr:
        """Entry i of the page list that begins at a word."""
        return self.words[begin + i]

    def _value(self, table: Table, i: Expr, column: str) -> Expr:
        word = self.words[i * table.width + table.at(column)]
        return T.reinterpret("float32", word) if column in FLOATS else word
