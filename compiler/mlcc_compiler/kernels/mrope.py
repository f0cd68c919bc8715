"""Which of a token's three positions turns a frequency of M-RoPE (`models/rope.py`), on all
targets."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr


def of_section(j: Expr, places: Sequence[Expr], sections: Sequence[int], interleaved: int) -> Expr:
    """Time, row or column, for frequency j."""
    time, row, column = places
    first, second, third = sections
    if not interleaved:
        return T.Select(j < first, time, T.Select(j < first + second, row, column))
    turn = tirx.truncmod(j, 3)
    is_row = tirx.all(turn == 1, j < 3 * second)
    is_column = tirx.all(turn == 2, j < 3 * third)
    return T.Select(is_row, row, T.Select(is_column, column, time))
