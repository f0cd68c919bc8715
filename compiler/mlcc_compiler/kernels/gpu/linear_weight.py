"""Read packed weights in a kernel, eight neighbours of a row at a time, as float32 registers.

The layout is `weight_layout.Packing`'s. Every value is exact: (code - zero) * scale has at most
19 significant bits. Not here: what is done with the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Argument, Expr, f32, store, u32
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.weight_layout import Packing
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, real

UNIT = 8
"""Neighbours along K that are read together: a word of 4-bit codes, 32 bytes of activations."""


def weight_arguments(packing: Packing, part: int) -> dict[str, Argument]:
    """The kernel arguments of one part of a weight."""
    rows = len(packing.parts[part])
    return {
        suffix[1:] or "weight": f32(rows, width) if dtype == "float32" else u32(rows, width)
        for suffix, width, dtype in packing.columns
    }


class WeightReader:
    """Reads a part of a weight; `buffers` are the kernel's arguments of `weight_arguments`."""

    def __init__(self, gpu: Gpu, packing: Packing, buffers: Sequence[Any]) -> None:
        self.gpu, self.packing, self.buffers = gpu, packing, buffers

    @property
    def units(self) -> int:
        """Units in a row; the last may end beyond K."""
        return -(-self.packing.k // UNIT)

    def read(self, row: Expr, unit: Expr, count: int = 1) -> list[Expr]:
        """Emit the reading of `count` units from `unit` on; what is beyond K is 0 for floats and
        meaningless for codes. `count` must divide `units`."""
        p = self.packing
        per_unit = max(1, UNIT // p.per_word)
        words = load(self.buffers[0], row, unit * per_unit, per_unit * count)
        if p.scheme.bits == 32:
            return words
        if p.scheme.dtype == "bfloat16":
            return [v for word in words for v in _bf16_pair(word)]
        if p.scheme.dtype == "float16":
            return [v for word in words for v in f16_pair(self.gpu, word)]
        return self._dequantized(row, unit * UNIT, words)

    def _dequantized(self, row: Expr, first: Expr, words: list[Expr]) -> list[Expr]:
        p = self.packing
        codes = [c for word in words for c in _codes(word, p.scheme.bits)]
        span = math.gcd(p.group, len(codes))
        values: list[Expr] = []
        for i in range(0, len(codes), span):
            # the last unit of a row may reach beyond the last group
            group = bind(tirx.min(tirx.floordiv(first + i, p.group), int32(p.groups - 1)))
            scale = self._scale(row, group)
            offset = bind(real(0) - self._zero(row, group) * scale)
            values += [bind(c * scale + offset) for c in codes[i : i + span]]
        return values

    def _scale(self, row: Expr, group: Expr) -> Expr:
        word = self.buffers[1][row, tirx.floordiv(group, 2)]
        return widen_f16(self.gpu, word >> (tirx.floormod(group, 2) * 16).astype("uint32"))

    def _zero(self, row: Expr, group: Expr) -> Expr:
        if self.packing.scheme.symmetric:
            return real(self.packing.scheme.middle)
        word = self.buffers[2][row, tirx.floordiv(group, 4)]
        shifted = word >> (tirx.floormod(group, 4) * 8).astype("uint32")
        return _and(shifted, 255).astype("float32")


def load(buffer: Any, row: Expr, first: Expr, count: int) -> list[Expr]:
    """`count` neighbours of a row in registers, 0 beyond its end; four at a time where aligned."""
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


def widen_f16(gpu: Gpu, word: Expr) -> Expr:
    """The low half of a word, an f16, as f32: exact, also where it is subnormal."""
    word = bind(word)
    if gpu.half_words:
        pair = bind(T.reinterpret("float16x2", word))
        return bind(T.Shuffle([pair], [0]).astype("float32"))
    magnitude = bind(_and(word, 0x7FFF))
    normal = T.reinterpret("float32", (magnitude << T.uint32(13)) + T.uint32(112 << 23))
    subnormal = magnitude.astype("float32") * real(2.0**-24)
    absolute = bind(T.Select(magnitude < T.uint32(1 << 10), subnormal, normal))
    sign = _and(word, 0x8000) << T.uint32(16)
    bits = T.bitwise_or(T.reinterpret("uint32", absolute), sign)
    return bind(T.reinterpret("float32", bits))


def f16_pair(gpu: Gpu, word: Expr) -> list[Expr]:
    """Both halves of a word."""
    return [widen_f16(gpu, word), widen_f16(gpu, word >> T.uint32(16))]


def _bf16_pair(word: Expr) -> list[Expr]:
    bits = word << T.uint32(16), _and(word, 0xFFFF0000)
    return [bind(T.reinterpret("float32", b)) for b in bits]


def _codes(word: Expr, bits: int) -> list[Expr]:
    """The codes of a word as floats."""
    if bits == 8:
        return _bytes(word)
    low = bind(_and(word, 0x0F0F0F0F))
    high = bind(_and(word >> T.uint32(4), 0x0F0F0F0F))
    return _bytes(low) + _bytes(high)


def _bytes(word: Expr) -> list[Expr]:
    return [_and(word >> T.uint32(8 * i), 255).astype("float32") for i in range(4)]


def _and(word: Expr, mask: int) -> Expr:
    return T.bitwise_and(word, T.uint32(mask))
