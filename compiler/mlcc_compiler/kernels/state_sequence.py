"""A sequence of a step as kernels with a state see it, whatever they run on."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr


@dataclass(frozen=True)
class StateSequence:
    """Whose tokens, which state is read and which is written."""

    first: Expr
    """Its first token."""
    tokens: Expr
    source: Expr
    """The slot of the state before the step; -1 = it begins with zeros."""
    slot: Expr
    """Where the state behind the step goes, which may be the same."""

    def state(self, states: Expr, zero: Expr, *at: Expr) -> Expr:
        """What the state before the step has at `at`: an element or, as `zero` is, a vector."""
        where = (T.max(self.source, 0), *at)
        return T.if_then_else(self.source < 0, zero, states[where])
