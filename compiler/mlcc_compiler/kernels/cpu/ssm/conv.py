"""Depthwise causal convolution over the tokens of each sequence, followed by an activation, on the
CPU.

The state holds the inputs that later tokens need. A task is some channels of a sequence, token by
token over the step: rows of x are read in place, and the state only before the first of them. The
state is written after all reads.
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheLayout
from mlcc_compiler.ir.states import ConvShape
from mlcc_compiler.kernels.cpu.isa.activations import ACTIVATIONS
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import bind, fit_lanes, span, spread
from mlcc_compiler.kernels.cpu.ssm.sequences import each_sequence
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.state_arguments import conv_arguments
from mlcc_compiler.kernels.state_sequence import StateSequence

_VECTORS = 16  # of a task
Load = Callable[[StateSequence, Expr, Expr], Expr]
"""(sequence, token of it, channels) -> that input."""


def causal_conv(isa: Isa, layout: CacheLayout, shape: ConvShape) -> PrimFunc:
    """The kernel of `conv_arguments`."""
    channels, taps = shape.channels, shape.taps
    lanes = fit_lanes(channels, isa.lanes)
    vectors = channels // lanes

    activation = ACTIVATIONS[shape.activation]

    def body(x: Expr, weight: Expr, *rest: Expr) -> None:
        *biases, words, states, _, out = rest

        def before(sequence: StateSequence, t: Expr, at: Expr) -> Expr:
            """The input at token t of a sequence; from the state if t is negative."""
            old = sequence.state(states, spread(0.0, lanes), T.max(t, -taps + 1) + taps - 1, at)
            return T.if_then_else(t < 0, old, x[sequence.first + T.max(t, 0), at])

        def task(sequence: StateSequence, part: Expr) -> None:
            start = bind(part * _VECTORS * lanes)
            count = bind(T.min(vectors - part * _VECTORS, _VECTORS))
            # side by side, as vectors want them; allocated here, it is this task's own
            weights = T.alloc_buffer((taps, _VECTORS * lanes), "float32")
            with T.grid(taps, count * lanes) as (tap, c):
                store(weights, weight[start + c, 0, tap], tap, c)

            def convolve(t: Expr, j: Expr, load: Load) -> None:
                here, at = span(j * lanes, lanes), span(start + j * lanes, lanes)
                total = spread(0.0, lanes)
                for tap in range(taps):
                    total = total + load(sequence, t + tap - taps + 1, at) * weights[tap, here]
                for bias in biases:
                    total = total + bias[at]
                store(out, activation(bind(total)), sequence.first + t, at)

            early = bind(T.min(sequence.tokens, taps - 1))
            with T.grid(early, count) as (t, j):
                convolve(t, j, before)
            with T.grid(sequence.tokens - early, count) as (t, j):
                convolve(early + t, j, inside)
            # the oldest first: what a step shorter than the state moves was not written before
            with T.serial(count) as j, T.serial(taps - 1) as age:
                at = span(start + j * lanes, lanes)
                kept = before(sequence, sequence.tokens - (taps - 1) + age, at)
                store(states, kept, sequence.slot, age, at)

        def inside(sequence: StateSequence, t: Expr, at: Expr) -> Expr:
            return x[sequence.first + t, at]

        each_sequence(layout, words, -(-vectors // _VECTORS), task)

    return kernel(body, **conv_arguments(isa, layout, shape))
