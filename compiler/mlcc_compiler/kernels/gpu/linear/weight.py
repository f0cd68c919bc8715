"""Read packed weights in a kernel, eight neighbours of a row at a time.

A weight is raw * scale + offset, where raw is a float16, bfloat16, float32 or a small integer; the
layout is `packing.GpuPacking`'s. Formed in float32 that is exact: at most 19 bits. Not here:
what is done with the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Argument, Expr, f32, store, u32
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, real

UNIT = 8
"""Neighbours along K that are read together: a word of 4-bit codes, 32 bytes of activations."""


def weight_arguments(packing: GpuPacking, part: int) -> dict[str, Argument]:
    """The kernel arguments of one part of a weight."""
    rows = len(packing.parts[part])
    return {
        suffix[1:] or "weight": f32(rows, width) if dtype == "float32" else u32(rows, width)
        for suffix, width, dtype in packing.columns
    }


@dataclass(frozen=True)
class Scaling:
    """weight = raw * scale + offset."""

    scale: Expr
    offset: Expr | None
    """None = 0."""


@dataclass(frozen=True)
class Block:
    """Neighbours of a row that share a scale."""

    raw: list[Expr]
    scaling: Scaling | None
    """None = raw is the weight."""

    def weights(self) -> list[Expr]:
        """The weights themselves."""
        if self.scaling is None:
            return self.raw
        scale, offset = self.scaling.scale, self.scaling.offset
        return keep([r * scale if offset is None else r * scale + offset for r in self.raw])


def weights_of(blocks: Sequence[Block]) -> list[Expr]:
    """Emit the weights of blocks, one after the other."""
    return [w for block in blocks for w in block.weights()]


class WeightReader:
    """Reads a part of a weight; `buffers` are the kernel's arguments of `weight_arguments`."""

    def __init__(self, gpu: Gpu, packing: GpuPacking, buffers: Sequence[Any]) -> None:
        self.gpu, self.packing, self.buffers = gpu, packing, buffers

    @property
    def units(self) -> int:
        """Units in a row; the last may end beyond K."""
        return -(-self.packing.k // UNIT)

    def shares_scale(self, units: int) -> bool:
        """Whether `units` units from a multiple of that on have one scale."""
        return not self.packing.scheme.is_float and self.packing.group % (units * UNIT) == 0

    def scaling(self, row: Expr, unit: Expr) -> Scaling:
        """Emit the reading of the scale that a unit begins with."""
        return self._scaling(row, bind(tirx.floordiv(unit * UNIT, self.packing.group)))()

    def read(self, row: Expr, unit: Expr, scaling: Scaling | None = None) -> list[Block]:
        """Emit the reading of a unit; what is beyond K is finite, and 0 for floats. `scaling` is
        the unit's, where it is known."""
        return self.fetch(row, unit, scaling)()

    def fetch(
        self, row: Expr, unit: Expr, scaling: Scaling | None = None
    ) -> Callable[[], list[Block]]:
        """Emit the loads of `read`; calling the result emits the arithmetic, perhaps later."""
        p = self.packing
        per_unit = max(1, UNIT // p.per_word)
        words = load(self.buffers[0], row, unit * per_unit, per_unit)
        if p.scheme.is_float:
            return lambda: [Block([v for word in words for v in self._floats(word)], None)]
        if scaling is not None:
            return lambda: [Block([c for word in words for c in self._codes(word)], scaling)]
        scalings = self._scalings(row, bind(unit * UNIT))

        def decode() -> list[Block]:
            codes = [c for word in words for c in self._codes(word)]
            span = UNIT // len(scalings)
            return [Block(codes[i * span : (i + 1) * span], s()) for i, s in enumerate(scalings)]

        return decode

    def weights(self, row: Expr, unit: Expr, scaling: Scaling | None = None) -> list[Expr]:
        """Emit the weights of a unit."""
        return weights_of(self.read(row, unit, scaling))

    def _scalings(self, row: Expr, first: Expr) -> list[Callable[[], Scaling]]:
        """Of the unit at `first`: one, or two where a group ends within."""
        p = self.packing
        found = []
        for i in range(0, UNIT, math.gcd(p.group, UNIT)):
            # the last unit of a row may reach beyond the last group
            group = bind(tirx.min(tirx.floordiv(first + i, p.group), int32(p.groups - 1)))
            found.append(self._scaling(row, group))
        return found

    def _scaling(self, row: Expr, group: Expr) -> Callable[[], Scaling]:
        scheme = self.packing.scheme
        scale_word = bind(self.buffers[1][row, tirx.floordiv(group, 2)])
        zero_word = None
        if not scheme.symmetric:
            zero_word = bind(self.buffers[2][row, tirx.floordiv(group, 4)])

        def decode() -> Scaling:
            half = scale_word >> (tirx.floormod(group, 2) * 16).astype("uint32")
            scale = _widen_f16(self.gpu, half, scheme.bits == 4)
            if zero_word is None:
                return Scaling(scale, None)
            zero = _and(zero_word >> (tirx.floormod(group, 4) * 8).astype("uint32"), 255)
            # raw is 16 times a 4-bit code, its scale a 16th of the scheme's
            step = 16 if scheme.bits == 4 else 1
            offset = real(scheme.middle * step) - zero.astype("float32") * real(step)
            return Scaling(scale, bind(offset * scale))

        return decode

    def _floats(self, word: Expr) -> list[Expr]:
        """The weights of a word of a float scheme."""
        if self.packing.scheme.bits == 32:
            return [word]
        if self.packing.scheme.dtype == "bfloat16":
            return _bf16_pair(word)
        return _f16_pair(self.gpu, word)

    def _codes(self, word: Expr) -> list[Expr]:
        """The codes of a word as floats; 4-bit ones 16-fold."""
        if self.packing.scheme.bits == 8:
            return self._bytes(word)
        low = bind(_and(word << T.uint32(4), 0xF0F0F0F0))
        high = bind(_and(word, 0xF0F0F0F0))
        return self._bytes(low) + self._bytes(high)

    def _bytes(self, word: Expr) -> list[Expr]:
        """The signed bytes of a word."""
        if self.gpu.narrow_types:
            narrow = [(word >> T.uint32(8 * i)).astype("int8") for i in range(4)]
            return keep([b.astype("float32") for b in narrow])
        top = [T.reinterpret("int32", word << T.uint32(24 - 8 * i)) for i in range(4)]
        return keep([(b >> 24).astype("float32") for b in top])


def keep(values: Sequence[Expr]) -> list[Expr]:
    """Emit the computation of the values once. In one array: TVM's passes take a time that grows
    with the square of the number of buffers."""
    registers = Local(len(values), str(values[0].ty.dtype))
    for i, value in enumerate(values):
        registers[i] = value
    return [registers[i] for i in range(len(values))]


def load(buffer: Any, row: Expr, first: Expr, count: int) -> list[Expr]:
    """`count` neighbours of a row in registers, 0 beyond its end; four at a time where aligned.
    `first` is a multiple of `count`."""
    width = int(buffer.shape[1])
    dtype = str(buffer.dtype)
    registers = Local(count, dtype)
    if width % count:  # then some may be beyond the end
        zero = real(0) if dtype == "float32" else T.uint32(0)
        for i in range(count):
            at = bind(first + i)
            registers[i] = T.if_then_else(at < width, buffer[row, at], zero)
        return [registers[i] for i in range(count)]
    lanes = math.gcd(count, 4)
    for i in range(0, count, lanes):
        if lanes == 1:
            registers[i] = buffer[row, first + i]
            continue
        with T.vectorized(lanes) as v:
            store(registers.buffer, buffer[row, first + (int32(v) + i)], int32(v) + i)
    return [registers[i] for i in range(count)]


def _widen_f16(gpu: Gpu, word: Expr, sixteenth: bool = False) -> Expr:
    """The low half of a word, an f16, as f32: exact, also where it is subnormal. Or a 16th."""
    word = bind(word)
    shrink = 2.0**-4 if sixteenth else 1.0
    if gpu.narrow_types:
        pair = bind(T.reinterpret("float16x2", word))
        wide = T.Shuffle([pair], [0]).astype("float32")
        return bind(wide * real(shrink) if sixteenth else wide)
    magnitude = bind(_and(word, 0x7FFF))
    bias = (112 << 23) - (4 << 23 if sixteenth else 0)
    normal = T.reinterpret("float32", (magnitude << T.uint32(13)) + T.uint32(bias))
    subnormal = magnitude.astype("float32") * real(2.0**-24 * shrink)
    absolute = bind(T.Select(magnitude < T.uint32(1 << 10), subnormal, normal))
    sign = _and(word, 0x8000) << T.uint32(16)
    bits = T.bitwise_or(T.reinterpret("uint32", absolute), sign)
    return bind(T.reinterpret("float32", bits))


def _f16_pair(gpu: Gpu, word: Expr) -> list[Expr]:
    return [_widen_f16(gpu, word), _widen_f16(gpu, word >> T.uint32(16))]


def _bf16_pair(word: Expr) -> list[Expr]:
    bits = word << T.uint32(16), _and(word, 0xFFFF0000)
    return keep([T.reinterpret("float32", b) for b in bits])


def _and(word: Expr, mask: int) -> Expr:
    return T.bitwise_and(word, T.uint32(mask))
