"""Refuses a graph that TVM would schedule wrongly on GPUs: a split into parts of unequal size."""

from __future__ import annotations

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import ir, relax
from mlcc_compiler.ir.graph import is_call


def check_splits(module: ir.IRModule) -> None:
    """Raises UnsupportedError for a split into unequal parts: TVM's schedule for GPUs lets the
    threads of the largest part write beyond the buffers of the others."""
    for function in module.functions.values():
        if not isinstance(function, relax.Function):
            continue
        for block in function.body.blocks:
            for binding in block.bindings:
                if is_call(binding.value, "relax.split"):
                    _check(binding.value)


def _check(split: relax.Call) -> None:
    parts = [_shape(part) for part in split.ty.fields]
    if len(set(parts)) > 1:
        raise UnsupportedError(
            f"a split of {_shape(split.args[0].ty)} into {', '.join(parts)}: unequal parts are not "
            "right on GPUs; the model's code must use ops.take_parts, which has its own kernel"
        )


def _shape(of: relax.TensorType) -> str:
    return "x".join(str(getattr(size, "value", size)) for size in of.shape.values)
