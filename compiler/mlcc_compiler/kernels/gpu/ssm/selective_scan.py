"""The selective scan of Mamba 2 (Dao and Gu, 2024) token by token, on a GPU.

A workgroup has some rows of one head's matrix of one sequence, in registers from the first token to
the last: a team of threads for each row, along the state. A decode step reads and writes each state
once.
"""

from __future__ import annotations

from math import gcd

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheLayout
from mlcc_compiler.ir.states import ScanShape
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.ssm.sequences import sequence_of
from mlcc_compiler.kernels.gpu.ssm.teams import LANES, product, softplus, totals
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, ceil_div, launch, real, when
from mlcc_compiler.kernels.state_arguments import scan_arguments
from mlcc_compiler.kernels.state_sequence import StateSequence


def selective_scan(gpu: Gpu, layout: CacheLayout, shape: ScanShape) -> PrimFunc:
    """The kernel of `scan_arguments`."""
    lanes = gcd(shape.state, LANES)
    teams = gpu.threads // lanes
    blocks = ceil_div(shape.head_dim, teams)
    each = shape.state // lanes

    def body(xbc: Expr, dt: Expr, a_log: Expr, skip: Expr, dt_bias: Expr, *rest: Expr) -> None:
        words, states, most, out = rest

        def run(sequence: StateSequence, head: Expr, row: Expr, lane: Expr, team: Expr) -> None:
            inside = row < shape.head_dim
            row = bind(T.min(row, shape.head_dim - 1))
            own = bind(head * shape.head_dim + row)
            to = bind(shape.inner + head // shape.group * shape.state + lane)
            seen = bind(to + shape.groups * shape.state)
            speed = bind(real(0) - T.exp(a_log[head]))
            matrix, asked = Local(each), Local(each)
            for i in range(each):
                matrix[i] = sequence.state(states, real(0), head, row, lane + i * lanes)
            with T.serial(sequence.tokens) as t:
                token = bind(sequence.first + t)
                time = clamp_time_step(softplus(dt[token, head] + dt_bias[head]), shape)
                decay, x = bind(T.exp(speed * time)), bind(xbc[token, own])
                factor = bind(time * x)
                for i in range(each):
                    matrix[i] = decay * matrix[i] + factor * xbc[token, to + i * lanes]
                    asked[i] = xbc[token, seen + i * lanes]
                part = product(matrix, asked, each)
                (total,) = totals(gpu, [part], lane, lanes, team, teams)
                with when(T.And(inside, lane == 0)):
                    store(out, total + skip[head] * x, token, head, row)
            with when(T.And(inside, sequence.slot >= 0)):
                for i in range(each):
                    store(states, matrix[i], sequence.slot, head, row, lane + i * lanes)

        grid = shape.heads * blocks, most
        with launch(grid, (lanes, teams)) as (block, s, lane, team):
            head, row = bind(block // blocks), bind(block % blocks * teams + team)
            run(sequence_of(layout, words, s), head, row, lane, team)

    return kernel(body, **scan_arguments(gpu, layout, shape))


def clamp_time_step(time: Expr, shape: ScanShape) -> Expr:
    """A time step clamped to the shape's range."""
    time = T.max(time, real(shape.shortest))
    return bind(time if shape.longest is None else T.min(time, real(shape.longest)))
