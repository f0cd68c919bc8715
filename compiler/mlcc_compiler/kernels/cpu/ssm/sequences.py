"""The sequences of a step as tasks of the CPU's threads."""

from __future__ import annotations

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheLayout
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, span, spread
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.state_sequence import StateSequence
from mlcc_compiler.kernels.step import Step


def each_sequence(
    layout: CacheLayout, words: Expr, tasks: int, body: Callable[[StateSequence, Expr], None]
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
        body(StateSequence(first, tokens, *slots), task)


def load_state(
    sequence: StateSequence, states: Expr, lanes: int, head: Expr, sizes: tuple[int, int]
) -> None:
    """Emit a copy of a head's matrix from its source slot to its destination slot, if they
    differ."""
    with (
        T.If(sequence.source != sequence.slot),
        T.Then(),
        T.grid(sizes[0], sizes[1] // lanes) as (j, i),
    ):
        at = head, j, span(i * lanes, lanes)
        store(states, sequence.state(states, spread(0.0, lanes), *at), sequence.slot, *at)
