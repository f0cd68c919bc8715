"""Collectives as operators of the graph. No kernel computes them: a library calls the executor,
which connects the ranks (runtime/native/src/ranks/ranks.cc).
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.ir.graph import PREFIX

ALL_REDUCE, ALL_GATHER = "all_reduce", "all_gather"
COLLECTIVES = (ALL_REDUCE, ALL_GATHER)


def all_reduce(x: Tensor) -> Tensor:
    """The sum of all ranks' x, bit-identical on every rank."""
    return _call(ALL_REDUCE, x, list(x.shape))


def all_gather(x: Tensor, ranks: int) -> Tensor:
    """x f32[r, width] of all ranks side by side, on every rank: f32[r, ranks * width]."""
    rows, width = x.shape
    return _call(ALL_GATHER, x, [rows, ranks * width])


def _call(name: str, x: Tensor, shape: list[Any]) -> Any:
    out = relax.TensorType(shape, x.dtype)
    return nn.op.wrap_nested(relax.call_pure_packed(PREFIX + name, x._expr, ty_args=out), name)
