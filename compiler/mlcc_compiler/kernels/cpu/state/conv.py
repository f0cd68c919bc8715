"""A depthwise causal convolution over the tokens of each sequence, with silu behind it, on the CPU.

The inputs that later tokens see stay in the state. A task is some channels of a sequence, which it
takes through all tokens of the step: what it reads of the state it reads before it writes.
"""

from __future__ import annotations

from mlcc_compiler._tvm import T
from mlcc_compiler.caches import CacheLayout
from mlcc_compiler.kernels.cpu.activation import silu
from mlcc_compiler.kernels.cpu.isa import Isa
from mlcc_compiler.kernels.cpu.state.sequences import Sequence, each_sequence
from mlcc_compiler.kernels.cpu.vector_math import Registers, bind, fit_lanes, span
from mlcc_compiler.kernels.frame import SIZE, Expr, PrimFunc, f32, kernel, store, tensor_argument
from mlcc_compiler.kernels.step import step_argument
from mlcc_compiler.states import ConvShape

_VECTORS = 16  # of a task


def causal_conv(isa: Isa, layout: CacheLayout, shape: ConvShape) -> PrimFunc:
    """(x f32[n, channels], weight f32[channels, 1, taps], step, states in place, b sequences at
    most) -> f32[n, channels]."""
    channels, taps = shape.channels, shape.taps
    lanes = fit_lanes(channels, isa.lanes)
    vectors = channels // lanes
    (kept,) = layout.tensors

    def body(x: Expr, weight: Expr, words: Expr, states: Expr, most: Expr, out: Expr) -> None:
        flat = T.decl_buffer((channels * taps,), "float32", data=weight.data)

        def vector(sequence: Sequence, first: Expr) -> None:
            """Channels from `first` on, whose inputs are a window that moves on by one a token."""
            at = span(first, lanes)
            window, weights = Registers(taps, lanes), Registers(taps, lanes)
            for tap in range(taps):
                start = first * taps + tap
                weights[tap] = flat[T.Ramp(start, taps, lanes) if lanes > 1 else start]
            for age in range(taps - 1):
                window[age] = sequence.state(states, lanes, age, at)
            with T.serial(sequence.tokens) as t:
                token = bind(sequence.first + t)
                window[taps - 1] = x[token, at]
                total = window[0] * weights[0]
                for tap in range(1, taps):
                    total = total + window[tap] * weights[tap]
                store(out, silu(bind(total)), token, at)
                for age in range(taps - 1):
                    window[age] = window[age + 1]
            for age in range(taps - 1):
                store(states, window[age], sequence.slot, age, at)

        def task(sequence: Sequence, part: Expr) -> None:
            first = bind(part * _VECTORS)
            with T.serial(T.min(vectors - first, _VECTORS)) as j:
                vector(sequence, bind((first + j) * lanes))

        each_sequence(layout, words, -(-vectors // _VECTORS), task)

    rows = f32("n", channels)
    return kernel(
        body,
        x=rows,
        weight=f32(channels, 1, taps),
        step=step_argument(layout.step),
        states=tensor_argument(kept),
        sequences=SIZE,
        out=rows,
    )
