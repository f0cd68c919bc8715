"""The sequences of a step as tasks: whose tokens, which state is read and which is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc_compiler._tvm import T
from mlcc_compiler.caches import CacheLayout
from mlcc_compiler.kernels.cpu.vector_math import bind, spread
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.step import Step


@dataclass(frozen=True)
class Sequence:
    """One sequence of a step."""

    first: Expr
    """Its first token."""
    tokens: Expr
    source: Expr
    """The slot of the state before the step; -1 = it begins with zeros."""
    slot: Expr
    """Where the state behind the step goes; may be the same."""

    def state(self, states: Expr, lanes: int, *at: Expr) -> Expr:
        """A vector of the state before the step."""
        where = (T.max(self.source, 0), *at)
        return T.if_then_else(self.source < 0, spread(0.0, lanes), states[where])


def each_sequence(
    layout: CacheLayout, words: Expr, tasks: int, body: Callable[[Sequence, Expr], None]
) -> None:
    """Emit body(sequence, task) for `tasks` tasks of every sequence of a step, in parallel."""
    step, group = Step(layout.step, words), layout.group
    with T.parallel(T.Cast("int64", step.count("sequences")) * tasks) as index:
        s, task = bind(T.floordiv(index, tasks)), bind(T.floormod(index, tasks))

        def column(name: str, s: Expr) -> Expr:
            return bind(T.Cast("int64", step.sequence(s, name)))

        first = column("first_token", s)
        tokens = bind(column("first_token", s + 1) - first)
        slots = (column(f"{name}.{group}", s) for name in ("slot_in", "slot_out"))
        body(Sequence(first, tokens, *slots), task)
