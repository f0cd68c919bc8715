"""Rows in parallel, where there is enough to do: the outer loop of most CPU kernels."""

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr

SERIAL_ELEMENTS = 8192
"""Up to so many cheap elements one thread is done before the others are awake (about 1 us)."""


def each_row(rows: Expr, elements: int, body: Callable[[Expr], None]) -> None:
    """Emit body(row) for all rows of `elements` each, in parallel if there is enough to do."""
    with T.If(rows * elements <= SERIAL_ELEMENTS):
        with T.Then(), T.serial(rows) as i:
            body(i)
        with T.Else(), T.parallel(rows) as i:
            body(i)
