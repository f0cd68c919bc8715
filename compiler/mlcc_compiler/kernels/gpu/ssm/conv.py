"""Depthwise causal convolution over the tokens of each sequence, followed by an activation, on a
GPU.

A thread is a channel of a sequence, token by token over the step; it reads the state before it
writes it.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.caches import CacheLayout
from mlcc_compiler.ir.states import ConvShape
from mlcc_compiler.kernels.frame import Expr, PrimFunc, kernel, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.elementwise.activation import ACTIVATIONS
from mlcc_compiler.kernels.gpu.ssm.sequences import sequence_of
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, ceil_div, launch, real, when
from mlcc_compiler.kernels.state_arguments import conv_arguments
from mlcc_compiler.kernels.state_sequence import StateSequence


def causal_conv(gpu: Gpu, layout: CacheLayout, shape: ConvShape) -> PrimFunc:
    """The kernel of `conv_arguments`."""
    channels, taps = shape.channels, shape.taps

    activation = ACTIVATIONS[shape.activation]

    def body(x: Expr, weight: Expr, *rest: Expr) -> None:
        *biases, words, states, most, out = rest

        def run(sequence: StateSequence, c: Expr) -> None:
            window, weights = Local(taps), Local(taps)
            for tap in range(taps):
                weights[tap] = weight[c, 0, tap]
            for age in range(taps - 1):
                window[age] = sequence.state(states, real(0), age, c)
            with T.serial(sequence.tokens) as t:
                token = bind(sequence.first + t)
                window[taps - 1] = x[token, c]
                total = window[0] * weights[0]
                for tap in range(1, taps):
                    total = total + window[tap] * weights[tap]
                for bias in biases:
                    total = total + bias[c]
                store(out, activation(total), token, c)
                for age in range(taps - 1):
                    window[age] = window[age + 1]
            with when(sequence.slot >= 0):
                for age in range(taps - 1):
                    store(states, window[age], sequence.slot, age, c)

        grid = ceil_div(channels, gpu.threads), most
        with launch(grid, (gpu.threads,)) as (block, s, thread):
            c = bind(block * gpu.threads + thread)
            with when(c < channels):
                run(sequence_of(layout, words, s), c)

    return kernel(body, **conv_arguments(gpu, layout, shape))
