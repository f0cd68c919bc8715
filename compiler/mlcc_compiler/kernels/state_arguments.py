"""Signatures of kernels with a recurrent state, for all devices: the operator's tensors and shared
vectors, the step, the states, updated in place, and the maximum number of sequences.
"""

from __future__ import annotations

from mlcc_compiler.ir.caches import CacheLayout
from mlcc_compiler.ir.states import ConvShape, DeltaShape, ScanShape
from mlcc_compiler.kernels.frame import SIZE, Argument, Device, activations, f32, tensor_argument
from mlcc_compiler.kernels.step import step_argument


def conv_arguments(device: Device, layout: CacheLayout, shape: ConvShape) -> dict[str, Argument]:
    """(x, weight, perhaps bias, step, states, sequences, out) of `causal_conv`."""
    rows = activations(device, "n", shape.channels)
    return {
        "x": rows,
        "weight": f32(shape.channels, 1, shape.taps),
        **({"bias": f32(shape.channels)} if shape.bias else {}),
        **_of_states(layout),
        "out": rows,
    }


def delta_arguments(device: Device, layout: CacheLayout, shape: DeltaShape) -> dict[str, Argument]:
    """(qkv, b, a, a_log, dt_bias, step, states, sequences, out) of `delta_rule`."""
    return {
        "qkv": activations(device, "n", shape.channels),
        "b": activations(device, "n", shape.v_heads),
        "a": activations(device, "n", shape.speeds),
        "a_log": f32(shape.v_heads),
        "dt_bias": f32(shape.speeds),
        **_of_states(layout),
        "out": activations(device, "n", shape.v_heads, shape.v_dim),
    }


def scan_arguments(device: Device, layout: CacheLayout, shape: ScanShape) -> dict[str, Argument]:
    """(xbc, dt, a_log, skip, dt_bias, step, states, sequences, out) of `selective_scan`."""
    return {
        "xbc": activations(device, "n", shape.channels),
        "dt": activations(device, "n", shape.heads),
        "a_log": f32(shape.heads),
        "skip": f32(shape.heads),
        "dt_bias": f32(shape.heads),
        **_of_states(layout),
        "out": activations(device, "n", shape.heads, shape.head_dim),
    }


def _of_states(layout: CacheLayout) -> dict[str, Argument]:
    (kept,) = layout.tensors
    return {
        "step": step_argument(layout.step),
        "states": tensor_argument(kept),
        "sequences": SIZE,
    }
