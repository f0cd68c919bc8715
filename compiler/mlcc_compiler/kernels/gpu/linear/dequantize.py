"""Dequantization: unpacks eight neighbouring codes of a row, a unit, to float32.

Two steps of four codes, each a word of bytes after its planes are combined (`kernels/planes.py`).
Signed codes are shifted to the top of their bytes, `2**excess` times their value, which the scale
compensates; codes with a minimum stay at the bottom, unsigned. Table codes become the table's
integers, four of which are a constant word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments.order import Placed, region
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.vec4 import FOUR
from mlcc_compiler.kernels.gpu.workgroup import Local, bind, int32, real
from mlcc_compiler.kernels.planes import integers
from mlcc_compiler.quantization import Scheme

UNIT = 8
"""Neighbours along K that are read together: a word of 4-bit codes, 32 bytes of activations."""

_STEPS = UNIT // planes.STEP


def units_of(plane: planes.Plane) -> int:
    """Number of units in a word of a plane."""
    return max(1, plane.per_byte // _STEPS)


class UnitCodes:
    """Reads units of a packing. A weight is the number of its code * scale * factor / 2**excess."""

    def __init__(self, gpu: Gpu, packing: GpuPacking) -> None:
        self.gpu, self.packing = gpu, packing
        self.planes = () if packing.scheme.is_float else planes.planes_of(packing.scheme.bits)
        self.excess, self.factor = 0, 1.0
        self.table: tuple[int, ...] = ()
        self._powers: tuple[float, ...] = ()
        """Of a curve in the code itself, the factors of its powers, the highest first."""
        if packing.scheme.table and not packing.scheme.is_e4m3:
            found = integers(packing.scheme.table)
            assert found is not None
            self.table, self.factor = found
            if packing.scheme.curve:
                self._powers = _powers(packing.scheme)
        elif packing.signed and not packing.scheme.is_float:
            self.excess = 8 - packing.scheme.bits

    def fetch(self, buffer: Any, row: Expr, unit: Expr) -> Callable[[], list[Expr]]:
        """Emit the loads of a unit; calling the result emits the arithmetic, possibly later."""
        words = [self.words(buffer, row, unit, plane) for plane in self.planes]
        return lambda: self.decode(words, unit)

    def words(self, buffer: Any, row: Expr, unit: Expr, plane: planes.Plane) -> list[Expr]:
        """Emit the loads of a plane for a unit. All units of a word, `units_of`, share them."""
        first = 0
        for before in self.planes[: self.planes.index(plane)]:
            first += before.vectors(self.packing.steps)
        buffer = region(buffer, self.planes.index(plane))
        if plane.bits == 8:
            return load(buffer, row, unit * _STEPS, _STEPS)
        return [bind(buffer[row, tirx.floordiv(unit, units_of(plane)) + first])]

    def decode(self, words: Sequence[list[Expr]], unit: Expr) -> list[Expr]:
        """Emit the arithmetic on a unit's words, those of each plane."""
        parts = self._parts(words, unit)
        return [value for step in range(_STEPS) for value in self._step(parts, step)]

    def step_words(self, words: Sequence[list[Expr]], unit: Expr) -> list[Expr]:
        """As `decode`, but the four codes of each step as the bytes of a word."""
        parts = self._parts(words, unit)
        return [self._word(parts, step) for step in range(_STEPS)]

    def table_byte(self, code: Expr) -> Expr:
        """The table's integer at the lowest bits of a word, as a byte."""
        code = bind(and_(code, (1 << self.packing.scheme.bits) - 1))
        curved = self._powers
        value = self._on_curve(bind(code.astype("float32"))) if curved else self._value(code)
        return bind(and_(T.reinterpret("uint32", value.astype("int32")), 255))

    def _parts(
        self, words: Sequence[list[Expr]], unit: Expr
    ) -> list[tuple[planes.Plane, list[Expr]]]:
        """The words of each plane, shifted to the unit's codes."""
        parts = []
        for plane, some in zip(self.planes, words, strict=True):
            if units_of(plane) > 1:
                at = tirx.floormod(unit, units_of(plane)) * (_STEPS * plane.bits)
                some = [bind(some[0] >> at.astype("uint32"))]
            parts.append((plane, some))
        return parts

    def _step(self, parts: list[tuple[planes.Plane, list[Expr]]], step: int) -> list[Expr]:
        """The four codes of a step as floats."""
        code = self._word(parts, step)
        if self.packing.scheme.is_e4m3:
            return keep([eight(code >> T.uint32(8 * i)) for i in range(4)])
        if self._powers:
            return keep([self._on_curve(value) for value in self._unsigned(code)])
        if self.table:
            return keep([self._value(code >> T.uint32(8 * i)) for i in range(4)])
        return self._signed(code) if self.packing.signed else self._unsigned(code)

    def _word(self, parts: list[tuple[planes.Plane, list[Expr]]], step: int) -> Expr:
        """The four codes of a step as the bytes of a word."""
        code = None
        for plane, words in parts:
            if plane.bits == 8:
                part = words[step]
            else:
                to = plane.low + self.excess
                mask = (plane.mask << to) * 0x01010101
                part = and_(_shifted(words[0], to - step * plane.bits), mask)
            code = part if code is None else T.bitwise_or(code, part)
        if self.packing.mirrored:
            top = self.packing.scheme.bits - 1
            lower = bind(and_(~(code >> T.uint32(top)), 0x01010101))
            code = T.bitwise_xor(code, lower * T.uint32((1 << top) - 1))
        return bind(code)

    def _on_curve(self, code: Expr) -> Expr:
        """The table value as a rounded curve, none of whose points is near a half."""
        first, *others = self._powers
        value = real(first)
        for factor in others:
            value = value * code + real(factor)
        return T.floor(value)

    def _value(self, code: Expr) -> Expr:
        """The table value of the lowest four bits."""
        code = bind(code)
        words = [_word(self.table[i : i + 4]) for i in range(0, 16, 4)]
        low, high = (T.Select(_bit(code, 2), words[i + 1], words[i]) for i in (0, 2))
        word = T.Select(_bit(code, 3), high, low)
        at = T.uint32(24) - (code & T.uint32(3)) * T.uint32(8)
        return (T.reinterpret("int32", word << at) >> 24).astype("float32")

    def _signed(self, word: Expr) -> list[Expr]:
        """The signed bytes of a word."""
        if self.gpu.narrow_types:
            narrow = [(word >> T.uint32(8 * i)).astype("int8") for i in range(4)]
            return keep([b.astype("float32") for b in narrow])
        top = [T.reinterpret("int32", word << T.uint32(24 - 8 * i)) for i in range(4)]
        return keep([(b >> 24).astype("float32") for b in top])

    def _unsigned(self, word: Expr) -> list[Expr]:
        """The unsigned bytes of a word."""
        low = [T.bitwise_and(word >> T.uint32(8 * i), T.uint32(255)) for i in range(4)]
        return keep([b.astype("float32") for b in low])


def eight(word: Expr) -> Expr:
    """The 8-bit float (e4m3) in the lowest bits: its bits as those of a float32, 2**-120 of it."""
    word = bind(word)
    bits = and_(word, 0x80) << T.uint32(24), and_(word, 0x7F) << T.uint32(20)
    return T.reinterpret("float32", T.bitwise_or(*bits)) * real(2.0**120)


def _powers(scheme: Scheme) -> tuple[float, ...]:
    """Coefficients of a curve plus one half, whose floor is the table."""
    assert scheme.curve is not None
    (first, c), n, middle = scheme.curve, 2.0**scheme.bits, scheme.levels / 2
    a, b = first / n, 2 * first / n**3
    return b, -3 * b * middle, 3 * b * middle**2 + a, 0.5 - c - (b * middle**2 + a) * middle


def _shifted(word: Expr, by: int) -> Expr:
    """Shifted left, or right if `by` is negative."""
    if by == 0:
        return word
    return word << T.uint32(by) if by > 0 else word >> T.uint32(-by)


def _bit(code: Expr, bit: int) -> Expr:
    return T.bitwise_and(code, T.uint32(1 << bit)) != T.uint32(0)


def _word(four: Sequence[int]) -> Expr:
    return T.uint32(int.from_bytes(bytes(v & 255 for v in four), "little"))


def and_(word: Expr, mask: int) -> Expr:
    """The bits of a word that are in the mask."""
    return T.bitwise_and(word, T.uint32(mask))


def keep(values: Sequence[Expr]) -> list[Expr]:
    """Emit the computation of the values once. In one array: TVM's passes take time quadratic in
    the number of buffers."""
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
    if isinstance(buffer, Placed):
        for i in range(count):
            registers[i] = buffer[row, first + i]
        return [registers[i] for i in range(count)]
    if hasattr(buffer, "load4"):
        for i in range(0, count, FOUR):
            place = T.Ramp(int32(i), int32(1), FOUR)
            store(registers.buffer, buffer.load4(row, first + i), place)
        return [registers[i] for i in range(count)]
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
