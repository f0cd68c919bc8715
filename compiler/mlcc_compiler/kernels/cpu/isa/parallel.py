"""Parallel loops over rows: the outer loop of most CPU kernels."""

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr

SERIAL_ELEMENTS = 8192
"""Below this number of cheap elements one thread finishes before others wake up (about 1 us)."""


def each_row(rows: Expr, elements: int, body: Callable[[Expr], None]) -> None:
    """Emit body(row) for all rows of `elements` each, in parallel if there is enough work."""
    with T.If(rows * elements <= SERIAL_ELEMENTS):
        with T.Then(), T.serial(rows) as i:
            body(i)
        with T.Else(), T.parallel(rows) as i:
            body(i)
