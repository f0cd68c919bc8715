"""The gated delta rule (Yang et al., 2024) token by token, on the CPU.

A task is one head of one sequence. Its matrix, a row for each value, is first brought to where it
will be written, then goes through the tokens there. With the sums of a row r before a token,

    a = r . k,  c = r . q,  d = beta * (v - decay * a)

the output is decay * c + (k . q) * d and the row becomes decay * r + d * k: each row is read twice
and written once a token, and queries and keys are made of length 1 by factors of the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from mlcc_compiler._tvm import T
from mlcc_compiler.caches import CacheLayout
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.state.sequences import bring, each_sequence
from mlcc_compiler.kernels.cpu.vector_math import (
    Registers,
    bind,
    exp,
    fit_lanes,
    sigmoid,
    span,
    spread,
    sum_lanes,
)
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.state_arguments import delta_arguments
from mlcc_compiler.kernels.state_sequence import StateSequence
from mlcc_compiler.states import DeltaShape

_ROWS = 4  # at a time: sums that do not wait for each other

Load = Callable[[Expr], Expr]
"""Gives vector i."""


def delta_rule(isa: Isa, layout: CacheLayout, shape: DeltaShape) -> PrimFunc:
    """The kernel of `delta_arguments`."""
    lanes = fit_lanes(shape.k_dim, isa.lanes)

    def body(qkv: Expr, b: Expr, a: Expr, a_log: Expr, dt_bias: Expr, *rest: Expr) -> None:
        words, states, _, out = rest
        rule = _Rule(shape, lanes, qkv, states)

        def task(sequence: StateSequence, head: Expr) -> None:
            bring(sequence, states, lanes, head, (shape.v_dim, shape.k_dim))
            speed = bind(T.float32(0) - exp(a_log[head]))
            with T.serial(sequence.tokens) as t:
                token = bind(sequence.first + t)
                step_size = softplus(a[token, head] + dt_bias[head])
                decay, beta = bind(exp(speed * step_size)), bind(sigmoid(b[token, head]))
                rule.learn(sequence, head, token, decay, beta, out)

        each_sequence(layout, words, shape.v_heads, task)

    return kernel(body, **delta_arguments(isa, layout, shape))


def softplus(x: Expr) -> Expr:
    """log(1 + e**x), of which e**x never overflows. By libm: once for a token and head."""
    x = bind(x)
    small = exp(T.float32(0) - T.fabs(x))
    return bind(T.max(x, T.float32(0)) + T.log(T.float32(1) + small))


@dataclass(frozen=True)
class _Rule:
    """Emits what one head does; vectors run along the keys."""

    shape: DeltaShape
    lanes: int
    qkv: Expr
    states: Expr

    def learn(
        self, sequence: StateSequence, head: Expr, token: Expr, decay: Expr, beta: Expr, out: Expr
    ) -> None:
        """One token: its output, and the matrix behind it."""
        shape, slot = self.shape, sequence.slot
        key_head = bind(T.floordiv(head, shape.group))
        query = bind(key_head * shape.k_dim)
        key = bind(query + shape.k_heads * shape.k_dim)
        value = bind(2 * shape.k_heads * shape.k_dim + head * shape.v_dim)

        def vector(first: Expr) -> Load:
            return lambda i: self.qkv[token, self._span(i, first)]

        q, k = vector(query), vector(key)
        *lengths, product = self._sums((q, q), (k, k), (q, k))
        q_factor, k_factor = (
            bind(T.float32(1) / T.sqrt(total + T.float32(shape.eps))) for total in lengths
        )
        q_factor = bind(q_factor * T.float32(shape.k_dim**-0.5))
        both = bind(product * q_factor * k_factor)
        together = gcd(shape.v_dim, _ROWS)
        with T.serial(shape.v_dim // together) as block:
            rows = [bind(block * together + u) for u in range(together)]

            def row(j: Expr) -> Load:
                return lambda i: self.states[slot, head, j, self._span(i)]

            sums = self._sums(*((row(j), other) for j in rows for other in (k, q)))
            factors = []
            for u, j in enumerate(rows):
                seen, asked = sums[2 * u : 2 * u + 2]
                change = bind(beta * (self.qkv[token, value + j] - decay * (seen * k_factor)))
                store(out, decay * (asked * q_factor) + both * change, token, head, j)
                factors.append(bind(change * k_factor))

            def update(i: Expr) -> None:
                for j, factor in zip(rows, factors, strict=True):
                    new = row(j)(i) * spread(decay, self.lanes) + k(i) * spread(factor, self.lanes)
                    store(self.states, new, slot, head, j, self._span(i))

            self._each(update)

    def _sums(self, *pairs: tuple[Load, Load]) -> list[Expr]:
        """The inner products of pairs of vectors along the keys."""
        totals = Registers(len(pairs), self.lanes)
        for p in range(len(pairs)):
            totals[p] = spread(0.0, self.lanes)

        def add(i: Expr) -> None:
            for p, (a, b) in enumerate(pairs):
                totals[p] = totals[p] + a(i) * b(i)

        self._each(add)
        return [sum_lanes(totals[p]) for p in range(len(pairs))]

    def _each(self, body: Callable[[Expr], None]) -> None:
        with T.serial(self.shape.k_dim // self.lanes) as i:
            body(i)

    def _span(self, i: Expr, first: Expr = 0) -> Expr:
        """Vector i of those that begin at `first`."""
        return span(first + i * self.lanes, self.lanes)
