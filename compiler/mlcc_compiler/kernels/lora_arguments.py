"""Signatures of the LoRA kernels, for all devices; their numpy twin is
`mlcc.device.reference.lora.low_rank`.
"""

from __future__ import annotations

from mlcc_compiler.ir.lora import LoraShape
from mlcc_compiler.kernels.frame import Argument, Device, activations, f32
from mlcc_compiler.kernels.step import step_argument


def shrink_arguments(device: Device, shape: LoraShape) -> dict[str, Argument]:
    """(x[n, inputs], a f32[slots, modules * rank, inputs], step) -> f32[n, modules * rank]: each
    token times the A rows of its slot; undefined beyond the adapter's rank and for tokens without
    an adapter."""
    return {
        "x": activations(device, "n", shape.inputs),
        "a": f32(shape.slots, shape.rows, shape.inputs),
        "step": step_argument(shape.layout),
        "out": f32("n", shape.rows),
    }


def expand_arguments(device: Device, shape: LoraShape) -> dict[str, Argument]:
    """(y[n, outputs], output of `adapt_shrink`, b f32[slots, rank, outputs], step) -> y plus each
    token's product with B; the modules are side by side, each with its own part."""
    rows = activations(device, "n", sum(shape.outputs))
    return {
        "y": rows,
        "small": f32("n", shape.rows),
        "b": f32(shape.slots, shape.rank, sum(shape.outputs)),
        "step": step_argument(shape.layout),
        "out": rows,
    }
