"""The kernels of a product for few and for many rows, in one function: the host chooses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr

Variant = tuple[int, Callable[[], None]]
"""(largest suitable number of rows, emitter)."""


def first_that_takes(n: Expr, variants: Sequence[Variant]) -> None:
    """Emit the first of the variants that supports n rows, or the last."""
    (most, emit), *others = variants
    if not others:
        emit()
        return
    with T.If(n <= most):
        with T.Then():
            emit()
        with T.Else():
            first_that_takes(n, others)
