"""The gated delta rule (Yang et al., 2024) token by token, on the CPU; with a decay per channel,
Kimi Delta Attention (Kimi Team, 2025).

A task is one head of one sequence. Its matrix, a row for each value, is first copied to its
destination, then updated there by the tokens. With the inner products of a row r before a token
(`decay` is one number, or one for each key)

    a = r . (decay * k),  c = r . (decay * q),  d = beta * (v - a)

the output is c + (k . q) * d and the row becomes decay * r + d * k: each row is read twice and
written once a token, and queries and keys are normalised by factors of the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheLayout
from mlcc_compiler.ir.states import DeltaShape
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import (
    Registers,
    bind,
    exp,
    fit_lanes,
    sigmoid,
    softplus,
    span,
    spread,
    sum_lanes,
)
from mlcc_compiler.kernels.cpu.ssm.sequences import each_sequence, load_state
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.state_arguments import delta_arguments
from mlcc_compiler.kernels.state_sequence import StateSequence

_ROWS = 4  # at a time: sums that do not wait for each other

Load = Callable[[Expr], Expr]
"""Gives vector i."""


def delta_rule(isa: Isa, layout: CacheLayout, shape: DeltaShape) -> PrimFunc:
    """The kernel of `delta_arguments`."""
    lanes = fit_lanes(shape.k_dim, isa.lanes)

    def body(qkv: Expr, b: Expr, a: Expr, a_log: Expr, dt_bias: Expr, *rest: Expr) -> None:
        words, states, _, out = rest

        def task(sequence: StateSequence, head: Expr) -> None:
            load_state(sequence, states, lanes, head, (shape.v_dim, shape.k_dim))
            speed = bind(T.float32(0) - exp(a_log[head]))
            rule = _DeltaHead(shape, lanes, qkv, states, sequence.slot, head)
            forget = _Decay(shape, lanes, a, dt_bias, speed, head)
            left = forget.each() if shape.by_channel else forget.whole
            with T.serial(sequence.tokens) as t:
                token = bind(sequence.first + t)
                rule.update(token, left, bind(sigmoid(b[token, head])), out)

        each_sequence(layout, words, shape.v_heads, task)

    return kernel(body, **delta_arguments(isa, layout, shape))


@dataclass(frozen=True)
class _TokenDecay:
    """A token's decay of a head's matrix."""

    of: Load
    """The decay of each key."""
    k: Load
    q: Load
    """The token's own vectors, multiplied by the decay if it is per key ..."""
    whole: Expr
    """... else the factor of their inner products."""


@dataclass(frozen=True)
class _Decay:
    """Emits a token's decay: exp(speed * softplus(a + dt_bias))."""

    shape: DeltaShape
    lanes: int
    a: Expr
    dt_bias: Expr
    speed: Expr
    head: Expr

    def whole(self, token: Expr, k: Load, q: Load) -> _TokenDecay:
        """One number for all keys."""
        time = softplus(self.a[token, self.head] + self.dt_bias[self.head])
        left = bind(exp(self.speed * time))
        return _TokenDecay(lambda i: spread(left, self.lanes), k, q, left)

    def each(self) -> Callable[[Expr, Load, Load], _TokenDecay]:
        """One number per key, in scratch arrays of the current task."""
        lanes, k_dim = self.lanes, self.shape.k_dim
        decay, k_left, q_left = (T.alloc_buffer((k_dim,), "float32") for _ in range(3))

        def load(array: Expr) -> Load:
            return lambda i: array[span(i * lanes, lanes)]

        def left(token: Expr, k: Load, q: Load) -> _TokenDecay:
            with T.serial(k_dim // lanes) as i:
                own, here = span(self.head * k_dim + i * lanes, lanes), span(i * lanes, lanes)
                time = softplus(self.a[token, own] + self.dt_bias[own])
                some = bind(exp(spread(self.speed, lanes) * time))
                for array, value in ((decay, some), (k_left, some * k(i)), (q_left, some * q(i))):
                    store(array, value, here)
            return _TokenDecay(load(decay), load(k_left), load(q_left), T.float32(1))

        return left


@dataclass(frozen=True)
class _DeltaHead:
    """Emits the update of one head; vectors run along the keys."""

    shape: DeltaShape
    lanes: int
    qkv: Expr
    states: Expr
    slot: Expr
    head: Expr

    def update(
        self, token: Expr, forget: Callable[[Expr, Load, Load], _TokenDecay], beta: Expr, out: Expr
    ) -> None:
        """One token: its output, and the updated matrix."""
        shape, head = self.shape, self.head
        query = bind(T.floordiv(head, shape.group) * shape.k_dim)
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
        left = forget(token, k, q)
        together = gcd(shape.v_dim, _ROWS)
        with T.serial(shape.v_dim // together) as block:
            rows = [bind(block * together + u) for u in range(together)]
            sums = self._sums(*((self._row(j), other) for j in rows for other in (left.k, left.q)))
            factors = []
            for u, j in enumerate(rows):
                seen, asked = sums[2 * u : 2 * u + 2]
                known = left.whole * (seen * k_factor)
                change = bind(beta * (self.qkv[token, value + j] - known))
                store(out, left.whole * (asked * q_factor) + both * change, token, head, j)
                factors.append(bind(change * k_factor))

            def update(i: Expr) -> None:
                for j, factor in zip(rows, factors, strict=True):
                    new = self._row(j)(i) * left.of(i) + k(i) * spread(factor, self.lanes)
                    store(self.states, new, self.slot, head, j, self._span(i))

            self._each(update)

    def _row(self, j: Expr) -> Load:
        return lambda i: self.states[self.slot, self.head, j, self._span(i)]

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
