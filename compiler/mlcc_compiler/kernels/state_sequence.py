"""A sequence of a step, for kernels with a recurrent state on all devices."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr


@dataclass(frozen=True)
class StateSequence:
    """A sequence's tokens and its state slots."""

    first: Expr
    """Its first token."""
    tokens: Expr
    source: Expr
    """Slot of the state before the step; -1 = zeros."""
    slot: Expr
    """Slot of the state after the step; may equal `source`."""

    def state(self, states: Expr, zero: Expr, *at: Expr) -> Expr:
        """Element, or vector (as `zero` is), of the state before the step at `at`."""
        where = (T.max(self.source, 0), *at)
        return T.if_then_else(self.source < 0, zero, states[where])
