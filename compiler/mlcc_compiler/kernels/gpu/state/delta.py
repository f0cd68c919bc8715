"""The gated delta rule (Yang et al., 2024) token by token, on a GPU.

A workgroup has some rows of one head's matrix of one sequence, in registers from the first token to
the last: a team of threads for each row, which runs along the keys. With the sums of a row r

    a = r . k,  c = r . q,  d = beta * (v - decay * a)

the output is decay * c + (k . q) * d and the row becomes decay * r + d * k, so that a token takes
one reduction; queries and keys are made of length 1 by factors of the sums. A decode step reads and
writes each state once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from mlcc_compiler._tvm import T
from mlcc_compiler.caches import CacheLayout
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise import sigmoid
from mlcc_compiler.kernels.gpu.state.sequences import sequence_of
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    add,
    barrier,
    bind,
    ceil_div,
    launch,
    real,
    reduce,
    shared,
    when,
)
from mlcc_compiler.kernels.state_arguments import delta_arguments
from mlcc_compiler.kernels.state_sequence import StateSequence
from mlcc_compiler.states import DeltaShape

_LANES = 16  # threads of a row, at most: 64 bytes side by side


def delta_rule(gpu: Gpu, layout: CacheLayout, shape: DeltaShape) -> PrimFunc:
    """The kernel of `delta_arguments`."""
    lanes = gcd(shape.k_dim, _LANES)
    teams = gpu.threads // lanes
    blocks = ceil_div(shape.v_dim, teams)
    each = shape.k_dim // lanes

    def body(qkv: Expr, ba: Expr, a_log: Expr, dt_bias: Expr, *rest: Expr) -> None:
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
                parts = [_product(a, b, each) for a, b in pairs]
                seen, asked, qq, kk, qk = _totals(gpu, parts, lane, lanes, team, teams)
                q_factor = bind(real(shape.k_dim**-0.5) / T.sqrt(qq + real(shape.eps)))
                k_factor = bind(real(1) / T.sqrt(kk + real(shape.eps)))
                step_size = softplus(ba[token, shape.v_heads + head] + dt_bias[head])
                decay = bind(T.exp(speed * step_size))
                known = decay * (seen * k_factor)
                change = bind(sigmoid(ba[token, head]) * (qkv[token, value] - known))
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


def softplus(x: Expr) -> Expr:
    """log(1 + e**x), of which e**x never overflows."""
    x = bind(x)
    return bind(T.max(x, real(0)) + T.log(real(1) + T.exp(real(0) - T.fabs(x))))


def _product(a: Local, b: Local, each: int) -> Expr:
    """This thread's part of an inner product."""
    total = a[0] * b[0]
    for i in range(1, each):
        total = total + a[i] * b[i]
    return bind(total)


def _totals(
    gpu: Gpu, parts: Sequence[Expr], lane: Expr, lanes: int, team: Expr, teams: int
) -> list[Expr]:
    """Each of `parts` summed over the lanes of a team. Where threads exchange no registers, all of
    them together: `reduce` would meet once for each."""
    if lanes == 1 or gpu.subgroup >= lanes:
        return [reduce(gpu, part, add, lane, lanes, team, teams) for part in parts]
    # a buffer each: of one, TVM would want a barrier between its parts, under the condition
    cells = [shared((teams * lanes,)) for _ in parts]
    first = team * lanes
    for cell, part in zip(cells, parts, strict=True):
        store(cell, part, first + lane)
    barrier()
    half = lanes // 2
    while half:
        with when(lane < half):
            for cell in cells:
                store(cell, cell[first + lane] + cell[first + lane + half], first + lane)
        barrier()
        half //= 2
    totals = [bind(cell[first]) for cell in cells]
    barrier()  # so that the cells may be written again
    return totals
