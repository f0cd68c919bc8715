"""Reads packed weights in a kernel, eight neighbours of a row at a time.

A weight is raw * scale + offset, where raw is a float16, bfloat16, float32 or a small integer; the
layout is `packing.GpuPacking`'s. Computed in float32 it equals `quantization.dequantize` to the
bit: no product has more than 24 bits. Unpacking a word's codes is `dequantize.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Argument, Expr
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, UnitCodes, and_, eight, keep, load
from mlcc_compiler.kernels.gpu.linear.fragments.order import Placed, region
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.workgroup import bind, int32, real
from mlcc_compiler.quantization.schemes import ZEROS

_GROUPS = 4
"""Groups whose integers, or zero points, share a word."""


def weight_arguments(packing: GpuPacking, part: int) -> dict[str, Argument]:
    """The kernel arguments of one part of a weight."""
    rows = len(packing.parts[part])
    return {
        suffix[1:] or "weight": Argument(packing.shape(rows, width), dtype)
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
        if packing.fragments:
            self.buffers = [Placed(b, o) for b, o in zip(buffers, packing.orders, strict=True)]
        self.codes = UnitCodes(gpu, packing)

    @property
    def units(self) -> int:
        """Units in a row; the last may end beyond K."""
        return -(-self.packing.k // UNIT)

    def shares_scale(self, units: int) -> bool:
        """Whether `units` units from a multiple of that on have one scale, or, two-level, one word
        of integers for all their groups."""
        how, size, group = self.packing.scheme, units * UNIT, self.packing.group
        if how.is_float or group % size == 0:
            return not how.is_float
        within = size % group == 0 and how.block % size == 0 and _GROUPS * group % size == 0
        return bool(how.block) and group % UNIT == 0 and within

    def scalings(self, row: Expr, unit: Expr) -> Callable[[Expr], Scaling]:
        """Emit the reading of what a unit shares with those of the same scale or integers; calling
        the result emits the scaling of one of these units."""
        group = self.packing.group
        of = self._loaded_scaling(row, bind(tirx.floordiv(unit * UNIT, group)))()
        return lambda one: of(bind(tirx.floordiv(one * UNIT, group)))

    def read(self, row: Expr, unit: Expr) -> list[Block]:
        """Emit the reading of a unit; values beyond K are finite, and 0 for floats."""
        return self.fetch(row, unit)()

    def fetch(self, row: Expr, unit: Expr) -> Callable[[], list[Block]]:
        """Emit the loads of `read`; calling the result emits the arithmetic, possibly later."""
        p = self.packing
        if p.scheme.is_float:
            per_unit = max(1, UNIT * p.scheme.bits // 32)
            words = load(self.buffers[0], row, unit * per_unit, per_unit)
            return lambda: [Block([v for word in words for v in self._floats(word)], None)]
        codes = self.codes.fetch(self.buffers[0], row, unit)
        scalings = self._scalings(row, bind(unit * UNIT))

        def decode() -> list[Block]:
            raw = codes()
            span = UNIT // len(scalings)
            return [Block(raw[i * span : (i + 1) * span], s()) for i, s in enumerate(scalings)]

        return decode

    def weights(self, row: Expr, unit: Expr) -> list[Expr]:
        """Emit the weights of a unit."""
        return weights_of(self.read(row, unit))

    def _scalings(self, row: Expr, first: Expr) -> list[Callable[[], Scaling]]:
        """Scalings of the unit at `first`: one, or two where a group ends within."""
        p = self.packing
        found: list[Callable[[], Scaling]] = []
        for i in range(0, UNIT, math.gcd(p.group, UNIT)):
            # the last unit of a row may reach beyond the last group
            group = bind(tirx.min(tirx.floordiv(first + i, p.group), int32(p.groups - 1)))
            found.append(partial(self._scaling_of, self._loaded_scaling(row, group), group))
        return found

    @staticmethod
    def _scaling_of(loaded: Callable[[], Callable[[Expr], Scaling]], group: Expr) -> Scaling:
        return loaded()(group)

    def scaling(self, row: Any, group: Expr, factor: float = 1.0) -> Scaling:
        """Emit the loads and the arithmetic of a group's scale, for the scheme's own numbers.
        row: as the buffers take it; factor: of the scale, where there are no zero points."""
        assert factor == 1 or self.packing.scheme.offset != ZEROS
        return self._loaded_scaling(row, group, 0, factor)()(group)

    def scale_loads(self, row: Any, group: Expr) -> None:
        """Emit the loads of `scaling` alone, or of `group_byte`."""
        if self.packing.scheme.is_nvfp4:
            self._number("sub_scales", row, group, 1)
            return
        self._loaded_scaling(row, group, 0, 1.0)

    def group_byte(self, row: Any, group: Expr) -> tuple[Expr, Expr]:
        """Emit the load of the word with a group's 8-bit float, of NVFP4; and which of its bytes it
        is."""
        load = self._number("sub_scales", row, group, 1)
        assert load is not None
        return load(int32(0)), tirx.floormod(group, _GROUPS)

    def row_scale(self, row: Any) -> Expr:
        """Emit the load of what groups of a row have in common, of NVFP4."""
        load = self._number("scales", row, int32(0), 4)
        assert load is not None
        return bind(T.reinterpret("float32", load(int32(0))))

    def _loaded_scaling(
        self, row: Any, group: Expr, excess: int | None = None, factor: float | None = None
    ) -> Callable[[], Callable[[Expr], Scaling]]:
        """Emit the loads of a group's scale. Calling the result emits the arithmetic that groups of
        the same words share, and calling its result the rest for one of them. excess, factor: of
        the codes, if not those of `UnitCodes`."""
        how = self.packing.scheme
        excess = self.codes.excess if excess is None else excess
        factor = self.codes.factor if factor is None else factor
        block = bind(tirx.floordiv(group, how.block // self.packing.group)) if how.block else group
        exponent, wide = how.scale_dtype == "uint8", how.scale_dtype == "float32"
        size = 1 if exponent else 4 if wide else 2
        load_scale = self._number("scales", row, block, size)
        load_minimum = self._number("minima", row, block, 2)
        load_scales, load_minima = (
            self._number(name, row, group, 1) for name in ("sub_scales", "sub_minima")
        )
        zero_word = None
        if how.offset == ZEROS:
            zero_word = bind(self.buffers[2][row, tirx.floordiv(group, _GROUPS)])

        def shared() -> Callable[[Expr], Scaling]:
            assert load_scale is not None
            level = load_scale(block)
            if exponent:
                level = T.reinterpret("float32", and_(level, 255) << T.uint32(23))
            elif wide:
                level = T.reinterpret("float32", level)
            else:
                level = _widen_f16(self.gpu, level, 0 if how.block else excess)
            less = factor * (2.0**-excess if how.block else 1.0)
            level = bind(level if less == 1 else level * real(less))
            least = None if load_minimum is None else _widen_f16(self.gpu, load_minimum(block))

            def one(at: Expr) -> Scaling:
                scale, minimum = level, least
                if load_scales is not None:
                    small = load_scales(at)
                    number = eight(small) if how.is_nvfp4 else _signed_byte(self.packing, small)
                    scale = bind(level * number)
                if load_minima is not None:
                    minimum = bind(minimum * _signed_byte(self.packing, load_minima(at)))
                if zero_word is None:
                    return Scaling(scale, minimum)
                zero = and_(zero_word >> (tirx.floormod(at, _GROUPS) * 8).astype("uint32"), 255)
                # raw is so many times a code, its scale that much less than the scheme's
                step = 1 << excess
                offset = real(how.middle * step) - zero.astype("float32") * real(step)
                return Scaling(scale, bind(offset * scale))

            return one

        return shared

    def _number(
        self, part: str, row: Expr, index: Expr, size: int
    ) -> Callable[[Expr], Expr] | None:
        """Emit the load of the word with an element of `size` bytes; the result emits the shift
        that brings one of its elements to the lowest bits. None = the scheme has no such part."""
        if part not in self.packing.scale_parts:
            return None
        first, _ = self.packing.scale_parts[part]
        per_word = 4 // size
        if per_word == 1:
            buffer = region(self.buffers[1], list(self.packing.scale_parts).index(part))
            alone = bind(buffer[row, index + first])
            return lambda at: alone
        buffer = region(self.buffers[1], list(self.packing.scale_parts).index(part))
        word = bind(buffer[row, tirx.floordiv(index, per_word) + first])
        return lambda at: word >> (tirx.floormod(at, per_word) * (8 * size)).astype("uint32")

    def _floats(self, word: Expr) -> list[Expr]:
        """The weights of a word of a float scheme."""
        if self.packing.scheme.bits == 32:
            return [word]
        if self.packing.scheme.dtype == "bfloat16":
            return _bf16_pair(word)
        return _f16_pair(self.gpu, word)


def _widen_f16(gpu: Gpu, word: Expr, less: int = 0) -> Expr:
    """The low half of a word, an f16, as f32, divided by 2**less: exact, also where it is
    subnormal."""
    word = bind(word)
    shrink = 2.0**-less
    if gpu.narrow_types:
        pair = bind(T.reinterpret("float16x2", word))
        wide = T.Shuffle([pair], [0]).astype("float32")
        return bind(wide * real(shrink) if less else wide)
    magnitude = bind(and_(word, 0x7FFF))
    normal = T.reinterpret("float32", (magnitude << T.uint32(13)) + T.uint32((112 - less) << 23))
    subnormal = magnitude.astype("float32") * real(2.0**-24 * shrink)
    absolute = bind(T.Select(magnitude < T.uint32(1 << 10), subnormal, normal))
    sign = and_(word, 0x8000) << T.uint32(16)
    bits = T.bitwise_or(T.reinterpret("uint32", absolute), sign)
    return bind(T.reinterpret("float32", bits))


def _signed_byte(packing: GpuPacking, word: Expr) -> Expr:
    """The lowest byte of a word, an int8, as f32."""
    if packing.fragments:  # CUDA: an instruction takes any byte of a word
        return word.astype("int8").astype("float32")
    return (T.reinterpret("int32", word << T.uint32(24)) >> 24).astype("float32")


def _f16_pair(gpu: Gpu, word: Expr) -> list[Expr]:
    return [_widen_f16(gpu, word), _widen_f16(gpu, word >> T.uint32(16))]


def _bf16_pair(word: Expr) -> list[Expr]:
    bits = word << T.uint32(16), and_(word, 0xFFFF0000)
    return keep([T.reinterpret("float32", b) for b in bits])
