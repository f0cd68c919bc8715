"""The frame of every kernel here: named arguments in, a private TIR function out.

A kernel is written with TVM's IR builder: the Python of its body runs once, when the kernel is
built; loops opened with T.serial or T.parallel stay, Python loops unroll.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc_compiler._tvm import B, IRBuilder, T, tirx
from mlcc_compiler.kernels.cpu.vector_math import Expr

PrimFunc = Any

_ATTRIBUTES = {
    "tirx.noalias": True,
    "tirx.is_scheduled": True,
    "op_pattern": 8,  # opaque: nothing may be fused into it or moved past its writes
}
SERIAL_ELEMENTS = 8192
"""Up to so many cheap elements one thread is done before the others are awake (about 1 us)."""


@dataclass(frozen=True)
class Argument:
    """A tensor argument; a str dimension is symbolic, the same wherever its name appears."""

    shape: tuple[int | str, ...]
    dtype: str


def f32(*shape: int | str) -> Argument:
    """A float32 argument."""
    return Argument(shape, "float32")


def i32(*shape: int | str) -> Argument:
    """An int32 argument."""
    return Argument(shape, "int32")


def kernel(body: Callable[..., None], **arguments: Argument) -> PrimFunc:
    """A PrimFunc of these arguments whose statements `body(*buffers)` emits."""
    sizes: dict[str, Expr] = {}
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        T.func_attr(_ATTRIBUTES)
        handles = [B.arg(name, T.handle()) for name in arguments]
        buffers = [
            T.match_buffer(handle, [_size(d, sizes) for d in argument.shape], argument.dtype)
            for handle, argument in zip(handles, arguments.values(), strict=True)
        ]
        body(*buffers)
    return builder.get()


def _size(dimension: int | str, sizes: dict[str, Expr]) -> Expr:
    """ "b + 1" is one more than "b"."""
    if isinstance(dimension, int):
        return dimension
    name, _, more = dimension.partition(" + ")
    if name not in sizes:
        sizes[name] = tirx.Var(name, "int64")
    return sizes[name] + int(more) if more else sizes[name]


def each_row(rows: Expr, elements: int, body: Callable[[Expr], None]) -> None:
    """Emit body(row) for all rows of `elements` each, in parallel if there is enough to do."""
    with T.If(rows * elements <= SERIAL_ELEMENTS):
        with T.Then(), T.serial(rows) as i:
            body(i)
        with T.Else(), T.parallel(rows) as i:
            body(i)
