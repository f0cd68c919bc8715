"""Frame of every kernel, for all devices: named arguments in, a private TIR function out.

A kernel is written with TVM's IR builder: the Python of its body runs once, when the kernel is
built; loops opened with T.serial or T.parallel stay, Python loops unroll.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mlcc_compiler.ir._tvm import B, IRBuilder, T, tirx
from mlcc_compiler.ir.caches import CacheTensor
from mlcc_compiler.ir.layout import KvLayout

PrimFunc = Any
Expr = Any
"""A TVM expression; TVM ships no types for them."""
Sizes = tuple[int, ...]
"""Static dimensions of a tensor: (hidden,), (heads, head_dim), () for one number a row."""

_ATTRIBUTES = {
    "tirx.noalias": True,
    "tirx.is_scheduled": True,
    "op_pattern": 8,  # opaque: nothing may be fused into it or moved past its writes
}


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


def u32(*shape: int | str) -> Argument:
    """A uint32 argument."""
    return Argument(shape, "uint32")


class Device(Protocol):
    """The properties of a device that the frame needs."""

    @property
    def activation_dtype(self) -> str:
        """Dtype of the activations between operators."""


def activations(device: Device, *shape: int | str) -> Argument:
    """An activation tensor, in the device's activation dtype.

    `f32` is for tensors that are float32 on every device: vector weights, rotation tables, scratch,
    logits, probabilities.
    """
    return Argument(shape, device.activation_dtype)


SIZE = Argument((), "int64")
"""A number of the step that no tensor's shape carries: an int64, passed by value."""


def page_arguments(layout: KvLayout) -> dict[str, Argument]:
    """The pages of one layer, and the scales of 8-bit pages."""
    names = ("pages", "scales")
    return {n: tensor_argument(t) for n, t in zip(names, layout.tensors, strict=False)}


def tensor_argument(tensor: CacheTensor) -> Argument:
    """A cache tensor: all its pages, or slots."""
    return Argument(("num_pages", *tensor.shape), tensor.dtype)


def kernel(body: Callable[..., None], **arguments: Argument) -> PrimFunc:
    """A PrimFunc of these arguments whose statements `body(*buffers)` emits; a SIZE is a number."""
    sizes: dict[str, Expr] = {}
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        T.func_attr(_ATTRIBUTES)
        handles = [
            B.arg(name, T.int64() if argument is SIZE else T.handle())
            for name, argument in arguments.items()
        ]
        buffers = [
            handle
            if argument is SIZE
            else T.match_buffer(handle, dimensions(argument, sizes), argument.dtype)
            for handle, argument in zip(handles, arguments.values(), strict=True)
        ]
        body(*buffers)
    return builder.get()


def store(buffer: Any, value: Expr, *at: Expr) -> None:
    """Emit buffer[at] = value."""
    T.buffer_store(buffer, value, list(at))


def one_of(values: Sequence[int], at: Expr) -> Expr:
    """values[at], int32."""
    found = T.int32(values[-1])
    for place, value in enumerate(values[:-1]):
        found = T.Select(at == place, T.int32(value), found)
    return found


def unravel_index(index: Expr, shape: Sequence[int]) -> list[Expr]:
    """The multi-index of element `index` of an array of this shape."""
    place: list[Expr] = []
    for size in reversed(shape):
        place.append(T.floormod(index, size))
        index = T.floordiv(index, size)
    return place[::-1]


def dimensions(argument: Argument, sizes: dict[str, Expr]) -> list[Expr]:
    """An argument's shape; `sizes` keeps the symbols by name. "b + 1" is one more than "b"."""
    return [_size(dimension, sizes) for dimension in argument.shape]


def _size(dimension: int | str, sizes: dict[str, Expr]) -> Expr:
    if isinstance(dimension, int):
        return dimension
    name, _, more = dimension.partition(" + ")
    if name not in sizes:
        sizes[name] = tirx.Var(name, "int64")
    return sizes[name] + int(more) if more else sizes[name]
