"""The sequences of a step in GPU kernels: their tokens and their state slots."""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheLayout
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.workgroup import bind
from mlcc_compiler.kernels.state_sequence import StateSequence
from mlcc_compiler.kernels.step import Step


def sequence_of(layout: CacheLayout, words: Expr, s: Expr) -> StateSequence:
    """Sequence s, up to the maximum number: beyond the step's own it has no tokens and writes to
    slot -1, which is discarded.

    The same for all threads of a workgroup: they loop equally often, and TVM allows no barriers
    under a condition that some threads do not meet.
    """
    step, group = Step(layout.step, words), layout.group
    used = bind(s < step.count("sequences"))
    first = bind(step.sequence(s, "first_token"))
    tokens = step.sequence(s + 1, "first_token") - first
    source = step.sequence(s, f"slot_in.{group}")
    slot = step.sequence(s, f"slot_out.{group}")
    return StateSequence(
        first,
        bind(T.if_then_else(used, tokens, T.int32(0))),
        bind(T.if_then_else(used, source, T.int32(-1))),
        bind(T.if_then_else(used, slot, T.int32(-1))),
    )
