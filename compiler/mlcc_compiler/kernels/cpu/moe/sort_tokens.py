"""Sorts tokens by expert, so that an expert's weights are read once for all of them.

An entry is a token's j-th choice, number token * k + j. A stable counting sort in one thread, as
512 tokens with 8 experts each take some 10 us.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import bind
from mlcc_compiler.kernels.frame import Expr, PrimFunc, i32, kernel, store


def expert_order(isa: Isa, experts: int, k: int) -> PrimFunc:
    """(choice i32[n, k]) -> order i32[n, k], the entries by expert; begin i32[experts + 1]: expert
    e's entries are begin[e] to begin[e + 1] of the order; active i32[experts + 1]: the number of
    experts with tokens, and which."""

    def body(choice: Expr, order: Expr, begin: Expr, active: Expr) -> None:
        entries = bind(choice.shape[0] * k)
        next_of = T.alloc_buffer((experts,), "int32")

        def expert(entry: Expr) -> Expr:
            return bind(choice[T.floordiv(entry, k), T.floormod(entry, k)])

        with T.serial(experts) as e:
            store(next_of, T.int32(0), e)
        with T.serial(entries) as entry:
            e = expert(entry)
            store(next_of, next_of[e] + 1, e)
        store(begin, T.int32(0), 0)
        store(active, T.int32(0), 0)
        with T.serial(experts) as e:
            with T.If(next_of[e] > 0), T.Then():
                store(active, active[0] + 1, 0)
                store(active, T.Cast("int32", e), active[0])
            store(begin, begin[e] + next_of[e], e + 1)
            store(next_of, begin[e], e)
        with T.serial(entries) as entry:
            e = expert(entry)
            at = bind(next_of[e])
            store(order, T.Cast("int32", entry), T.floordiv(at, k), T.floormod(at, k))
            store(next_of, at + 1, e)

    each = i32(experts + 1)
    return kernel(body, choice=i32("n", k), order=i32("n", k), begin=each, active=each)
