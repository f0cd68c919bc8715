"""The selective scan of Mamba 2 (Dao and Gu, 2024) on the CPU.

A task is one head of one sequence. Its matrix, a row for each of the head's numbers, is first
copied to its destination, then updated by the tokens, some at a time: each vector of a row is read
and written once for all of them and stays in a register in between, and the tokens' vectors are
read once for some rows. So a prompt costs its arithmetic and not the traffic of states. The paper's
chunked form, which turns tokens into matrix products, rounds depending on chunk boundaries; this
one is bit-identical to processing tokens one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheLayout
from mlcc_compiler.ir.states import ScanShape
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    exp,
    fit_lanes,
    softplus,
    span,
    spread,
    sum_lanes,
)
from mlcc_compiler.kernels.cpu.ssm.sequences import each_sequence, load_state
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.state_arguments import scan_arguments
from mlcc_compiler.kernels.state_sequence import StateSequence

_ROWS = 4  # at a time
_TOKENS = 4  # at a time


def selective_scan(isa: Isa, layout: CacheLayout, shape: ScanShape) -> PrimFunc:
    """The kernel of `scan_arguments`."""
    lanes = fit_lanes(shape.state, isa.lanes)

    def body(xbc: Expr, dt: Expr, a_log: Expr, skip: Expr, dt_bias: Expr, *rest: Expr) -> None:
        words, states, _, out = rest

        def task(sequence: StateSequence, head: Expr) -> None:
            load_state(sequence, states, lanes, head, (shape.head_dim, shape.state))
            speed = bind(T.float32(0) - exp(a_log[head]))
            scan = _Scan(shape, lanes, xbc, states, out, head, sequence.slot, bind(skip[head]))

            def times(token: Expr, count: int) -> list[tuple[Expr, Expr]]:
                """(time step, decay of the state) of some tokens."""
                steps = [
                    clamp_time_step(softplus(dt[token + u, head] + dt_bias[head]), shape)
                    for u in range(count)
                ]
                return [(time, bind(exp(speed * time))) for time in steps]

            whole = bind(T.floordiv(sequence.tokens, _TOKENS))
            with T.serial(whole) as block:
                token = bind(sequence.first + block * _TOKENS)
                scan.move(token, times(token, _TOKENS))
            with T.serial(sequence.tokens - whole * _TOKENS) as t:
                token = bind(sequence.first + whole * _TOKENS + t)
                scan.move(token, times(token, 1))

        each_sequence(layout, words, shape.heads, task)

    return kernel(body, **scan_arguments(isa, layout, shape))


def clamp_time_step(time: Expr, shape: ScanShape) -> Expr:
    """A time step clamped to the shape's range."""
    time = T.max(time, T.float32(shape.shortest))
    return bind(time if shape.longest is None else T.min(time, T.float32(shape.longest)))


@dataclass(frozen=True)
class _Scan:
    """Emits the update of one head; vectors run along the state."""

    shape: ScanShape
    lanes: int
    xbc: Expr
    states: Expr
    out: Expr
    head: Expr
    slot: Expr
    skip: Expr

    def move(self, token: Expr, times: list[tuple[Expr, Expr]]) -> None:
        """Advance the state through the tokens from `token` on, one for each of `times`."""
        together = gcd(self.shape.head_dim, _ROWS)
        with T.serial(self.shape.head_dim // together) as block:
            self._rows(token, times, [bind(block * together + r) for r in range(together)])

    def _rows(self, token: Expr, times: list[tuple[Expr, Expr]], rows: list[Expr]) -> None:
        shape, lanes, count = self.shape, self.lanes, len(times)
        vectors = shape.inner + T.floordiv(self.head, shape.group) * shape.state
        taken = [
            [bind(self.xbc[token + u, self.head * shape.head_dim + row]) for row in rows]
            for u in range(count)
        ]
        factors = [[bind(time * x) for x in xs] for xs, (time, _) in zip(taken, times, strict=True)]
        totals = Registers(count * len(rows), lanes)
        for i in range(count * len(rows)):
            totals[i] = spread(0.0, lanes)
        with T.serial(shape.state // lanes) as i:
            at = span(i * lanes, lanes)
            matrix = Registers(len(rows), lanes)
            for r, row in enumerate(rows):
                matrix[r] = self.states[self.slot, self.head, row, at]
            for u, (_, decay) in enumerate(times):
                first = vectors + i * lanes
                b = bind(self.xbc[token + u, span(first, lanes)])
                c = bind(self.xbc[token + u, span(first + shape.groups * shape.state, lanes)])
                for r in range(len(rows)):
                    new = matrix[r] * spread(decay, lanes) + b * spread(factors[u][r], lanes)
                    matrix[r] = new
                    totals[u * len(rows) + r] = totals[u * len(rows) + r] + matrix[r] * c
            for r, row in enumerate(rows):
                store(self.states, matrix[r], self.slot, self.head, row, at)
        for u in range(count):
            for r, row in enumerate(rows):
                total = sum_lanes(totals[u * len(rows) + r])
                store(self.out, total + self.skip * taken[u][r], token + u, self.head, row)
