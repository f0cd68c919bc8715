"""Access to a step in kernels: the columns of `mlcc.engine.batch.tables` as expressions over its
words.

Shared by all devices. Knows where a value lies, not its use.
"""

from __future__ import annotations

from mlcc.engine.batch.tables import FLOATS, StepLayout, Table
from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Argument, Expr, i32


def step_argument(layout: StepLayout) -> Argument:
    """The whole step, as every kernel takes it: int32[layout.words]."""
    return i32(layout.words)


class Step:
    """A step in a kernel. Indices are int32 or int64; values are int32 or float32."""

    def __init__(self, layout: StepLayout, words: Expr) -> None:
        self.layout, self.words = layout, words

    def count(self, name: str) -> Expr:
        """A number of the header: tokens, sequences, rows or copies.

        This is the actual number; the shape argument, which sizes arrays and grids, may be larger,
        and entries beyond the number are never read.
        """
        return self.words[self.layout.header.at(name)]

    @property
    def prompts(self) -> Expr:
        """How many of the last sequences compute tokens of their prompts."""
        return self.sequence(self.count("sequences"), "length")

    def token(self, i: Expr, column: str) -> Expr:
        """A column of token i."""
        return self._value(self.layout.tokens, i, column)

    def row(self, i: Expr, column: str) -> Expr:
        """A column of row i; columns stored as float bits are float32."""
        return self._value(self.layout.rows, i, column)

    def sequence(self, s: Expr, column: str) -> Expr:
        """A column of sequence s; CSR columns have an additional last entry."""
        return self._value(self.layout.sequences, s, column)

    def copy(self, i: Expr, column: str) -> Expr:
        """A column of copy i."""
        return self._value(self.layout.copies, i, column)

    def pages_begin(self, group: int) -> Expr:
        """The word where a group's page list begins; argument of `page`."""
        return self.words[self.layout.header.at(f"pages.{group}")]

    def page(self, begin: Expr, i: Expr) -> Expr:
        """Entry i of the page list that begins at word `begin`."""
        return self.words[begin + i]

    def _value(self, table: Table, i: Expr, column: str) -> Expr:
        word = self.words[i * table.width + table.at(column)]
        return T.reinterpret("float32", word) if column in FLOATS else word
