"""The gated delta rule (Yang et al., 2024) token by token, on a GPU.

A workgroup has some rows of one head's matrix of one sequence, in registers from the first token to
the last: a team of threads for each row, which runs along the keys. With the sums of a row r

    a = r . k,  c = r . q,  d = beta * (v - decay * a)

the output is decay * c + (k . q) * d and the row becomes decay * r + d * k, so that a token takes
one reduction; queries and keys are made of length 1 by factors of the sums. A decode step reads and
writes each state once.
"""

from __future__ import annotations

from math import gcd

from mlcc_compiler._tvm import T
from mlcc_compiler.caches import CacheLayout
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import sigmoid
from mlcc_compiler.kernels.gpu.state.sequences import sequence_of
from mlcc_compiler.kernels.gpu.state.teams import LANES, product, softplus, totals
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, ceil_div, launch, real, when
from mlcc_compiler.kernels.state_arguments import delta_arguments
from mlcc_compiler.kernels.state_sequence import StateSequence
from mlcc_compiler.states import DeltaShape


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
            matrix, q, k = (Local(each) for _ in range(3))
            for i in range(each):
                matrix[i] = sequence.state(states, real(0), head, row, lane + i * lanes)
            with T.serial(sequence.tokens) as t:
                token = bind(sequence.first + t)
                for i in range(each):
                    q[i], k[i] = qkv[token, query + i * lanes], qkv[token, key + i * lanes]
                pairs = (matrix, k), (matrix, q), (q, q), (k, k), (q, k)
                parts = [product(a, b, each) for a, b in pairs]
                seen, asked, qq, kk, qk = totals(gpu, parts, lane, lanes, team, teams)
                q_factor = bind(real(shape.k_dim**-0.5) / T.sqrt(qq + real(shape.eps)))
                k_factor = bind(real(1) / T.sqrt(kk + real(shape.eps)))
                step_size = softplus(a[token, head] + dt_bias[head])
                decay = bind(T.exp(speed * step_size))
                known = decay * (seen * k_factor)
                change = bind(sigmoid(b[token, head]) * (qkv[token, value] - known))
                with when(T.And(inside, lane == 0)):
                    found = decay * (asked * q_factor) + qk * q_factor * k_factor * change
                    store(out, found, token, head, row)
                for i in range(each):
                    matrix[i] = decay * matrix[i] + k[i] * (change * k_factor)
            with when(T.And(inside, sequence.slot >= 0)):
                for i in range(each):
                    store(states, matrix[i], sequence.slot, head, row, lane + i * lanes)

        grid = shape.v_heads * blocks, most
        with launch(grid, (lanes, teams)) as (block, s, lane, team):
            head, row = bind(block // blocks), bind(block % blocks * teams + team)
            run(sequence_of(layout, words, s), head, row, lane, team)

    return kernel(body, **delta_arguments(gpu, layout, shape))
