"""The sequences of a step as a GPU's kernels see them: whose tokens, and which state."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler._tvm import T
from mlcc_compiler.caches import CacheLayout
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.workgroup import bind, real
from mlcc_compiler.kernels.step import Step


@dataclass(frozen=True)
class Sequence:
    """One sequence of a step."""

    first: Expr
    """Its first token."""
    tokens: Expr
    """None of a sequence that the step has no more."""
    source: Expr
    """The slot of the state before the step; -1 = it begins with zeros."""
    slot: Expr
    """Where the state behind the step goes, which may be the same; -1 = nowhere."""

    @classmethod
    def of(cls, layout: CacheLayout, words: Expr, s: Expr) -> Sequence:
        """Sequence s of those for which there is room.

        The same for all threads of a workgroup: they agree on how often they loop, and TVM allows
        no barriers under a condition that would leave the others out.
        """
        step, group = Step(layout.step, words), layout.group
        used = bind(s < step.count("sequences"))
        first = bind(step.sequence(s, "first_token"))
        tokens = step.sequence(s + 1, "first_token") - first
        source = step.sequence(s, f"slot_in.{group}")
        slot = step.sequence(s, f"slot_out.{group}")
        return cls(
            first,
            bind(T.if_then_else(used, tokens, T.int32(0))),
            bind(T.if_then_else(used, source, T.int32(-1))),
            bind(T.if_then_else(used, slot, T.int32(-1))),
        )

    def state(self, states: Expr, *at: Expr) -> Expr:
        """An element of the state before the step."""
        where = (T.max(self.source, 0), *at)
        return T.if_then_else(self.source < 0, real(0), states[where])
