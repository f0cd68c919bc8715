"""The gated delta rule (Yang et al., 2024) token by token, on a GPU; with a decay per channel, Kimi
Delta Attention (Kimi Team, 2025).

A workgroup has some rows of one head's matrix of one sequence, in registers from the first token to
the last: a team of threads for each row, along the keys. A token first multiplies a row r by its
decay, one number or one for each key; then, with

    a = r . k,  c = r . q,  d = beta * (v - a)

the output is c + (k . q) * d and the row becomes r + d * k, so that a token takes one reduction;
queries and keys are normalised by factors of the sums. A decode step reads and writes each state
once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheLayout
from mlcc_compiler.ir.states import DeltaShape
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import sigmoid
from mlcc_compiler.kernels.gpu.ssm.sequences import sequence_of
from mlcc_compiler.kernels.gpu.ssm.teams import LANES, product, softplus, totals
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    launch,
    real,
    shared,
    when,
)
from mlcc_compiler.kernels.state_arguments import delta_arguments
from mlcc_compiler.kernels.state_sequence import StateSequence


def delta_rule(gpu: Gpu, layout: CacheLayout, shape: DeltaShape) -> PrimFunc:
    """The kernel of `delta_arguments`."""
    lanes = gcd(shape.k_dim, LANES)
    teams = gpu.threads // lanes
    blocks = ceil_div(shape.v_dim, teams)
    each = shape.k_dim // lanes

    def body(qkv: Expr, b: Expr, a: Expr, a_log: Expr, dt_bias: Expr, *rest: Expr) -> None:
        words, states, most, out = rest

        def run(sequence: StateSequence, head: Expr, row: Expr, lane: Expr, team: Expr) -> None:
            inside = row < shape.v_dim
            row = bind(T.min(row, shape.v_dim - 1))
            query = bind(head // shape.group * shape.k_dim + lane)
            key = bind(query + shape.k_heads * shape.k_dim)
            value = bind(2 * shape.k_heads * shape.k_dim + head * shape.v_dim + row)
            speed = bind(real(0) - T.exp(a_log[head]))
            # allocated here it shares no memory with the sums, from which no barrier parts it
            room = ceil_div(shape.k_dim, gpu.threads) * gpu.threads
            cells = shared((room,)) if shape.by_channel else None
            forget = _Decay(gpu, shape, a, dt_bias, speed, head, cells)
            matrix, q, k = (Local(each) for _ in range(3))
            for i in range(each):
                matrix[i] = sequence.state(states, real(0), head, row, lane + i * lanes)
            with T.serial(sequence.tokens) as t:
                token = bind(sequence.first + t)
                left = forget.of_token(token, team * lanes + lane)
                for i in range(each):
                    matrix[i] = matrix[i] * left(lane + i * lanes)
                    q[i], k[i] = qkv[token, query + i * lanes], qkv[token, key + i * lanes]
                pairs = (matrix, k), (matrix, q), (q, q), (k, k), (q, k)
                parts = [product(a, b, each) for a, b in pairs]
                seen, asked, qq, kk, qk = totals(gpu, parts, lane, lanes, team, teams)
                q_factor = bind(real(shape.k_dim**-0.5) / T.sqrt(qq + real(shape.eps)))
                k_factor = bind(real(1) / T.sqrt(kk + real(shape.eps)))
                change = bind(sigmoid(b[token, head]) * (qkv[token, value] - seen * k_factor))
                with when(T.And(inside, lane == 0)):
                    found = asked * q_factor + qk * q_factor * k_factor * change
                    store(out, found, token, head, row)
                for i in range(each):
                    matrix[i] = matrix[i] + k[i] * (change * k_factor)
            with when(T.And(inside, sequence.slot >= 0)):
                for i in range(each):
                    store(states, matrix[i], sequence.slot, head, row, lane + i * lanes)

        grid = shape.v_heads * blocks, most
        with launch(grid, (lanes, teams)) as (block, s, lane, team):
            head, row = bind(block // blocks), bind(block % blocks * teams + team)
            run(sequence_of(layout, words, s), head, row, lane, team)

    return kernel(body, **delta_arguments(gpu, layout, shape))


@dataclass(frozen=True)
class _Decay:
    """Emits a token's decay of a head's matrix: exp(speed * softplus(a + dt_bias))."""

    gpu: Gpu
    shape: DeltaShape
    a: Expr
    dt_bias: Expr
    speed: Expr
    head: Expr
    cells: Expr
    """None, or scratch for the decay of each key, padded."""

    def of_token(self, token: Expr, thread: Expr) -> Callable[[Expr], Expr]:
        """Key -> decay. With a decay per key, the threads of a workgroup compute them together, as
        all rows need the same."""
        if not self.shape.by_channel:
            whole = self._decay_of(token, self.head)
            return lambda _: whole
        k_dim, threads, left = self.shape.k_dim, self.gpu.threads, self.cells
        barrier()  # all have read those of the token before
        for first in range(0, k_dim, threads):
            key = T.min(first + thread, k_dim - 1)
            store(left, self._decay_of(token, self.head * k_dim + key), first + thread)
        barrier()
        return lambda key: left[key]

    def _decay_of(self, token: Expr, which: Expr) -> Expr:
        time = softplus(self.a[token, which] + self.dt_bias[which])
        return bind(T.exp(self.speed * time))
