"""Codes to pairs of float16, a few instructions for two weights.

A number of a pair is (code - middle) / factor - excess, with the same excess for all weights of one
of the two sides (columns 0 to 3 and 4 to 7 of a unit). `gemv.py` adds it to the sums,
`weights` to each pair. By scheme:

- **4, 5 and 6 bits**: the lowest four bits are masked and joined to the bits of 1024, or of 64
  where a code lies four bits higher: float16 1024 + code and 64 + code. The bits of the narrower
  planes are moved beside them.
- **8 bits**: a byte permutation puts each byte below the upper byte of 1024.
- **8-bit floats**: an instruction converts two to float16, exactly.
- **Signs and magnitudes** (the curves `t4_g32` and `t5_g32`, MXFP4): byte permutations look up
  eight magnitudes at a time, and put each below a byte with its sign. Such a float16 is subnormal,
  2**-24 times an integer, which tensor cores multiply exactly.
- **Floats** are weights already: float16 as it is, bfloat16 converted, by way of float32. Of
  bfloat16 numbers below 2**-17 some bits are lost, to within 2**-25.
- **Other tables** (IQ4): the bytes of both halves of the table are looked up and one of them
  chosen, by byte permutations too; then as 8 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.linear.fragments import mma
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.workgroup import Local, bind
from mlcc_compiler.kernels.planes import Plane, integers, planes_of
from mlcc_compiler.quantization import Scheme
from mlcc_compiler.quantization.schemes import E4M3_MOST, E4M3_SCALE

Words = Sequence[Sequence[Expr]]
"""Of each plane, the words of a unit."""
_ONE_K, _SIXTY_FOUR = 0x6400, 0x5400
"""The float16 1024 and 64."""
_MOST = 65504
"""The largest float16."""
_LOW, _HIGH = 0x000F000F, 0x00F000F0
_TOPS = 0x80808080
"""The top bit of each byte."""
_ZEROS = 0x80008000
"""A pair of -0: what an addition leaves as it is."""


class FloatCodes:
    """16-bit floats."""

    columns = (0, 1, 2, 3, 4, 5, 6, 7)
    factor = enlarged = 1.0
    excess = None

    def __init__(self, packing: GpuPacking, count: Expr) -> None:
        self.wide, self.count = packing.scheme.dtype == "bfloat16", count

    def pairs(self, words: Words, t: Expr) -> list[Expr]:
        """The weights themselves, see NibbleCodes."""
        (given,) = words
        if not self.wide:
            return list(given)
        found = Local(len(given), "uint32")
        for i, word in enumerate(given):
            halves = word << T.uint32(16), T.bitwise_and(word, T.uint32(0xFFFF0000))
            found[i] = mma.halves(*(T.reinterpret("float32", half) for half in halves))
        return [found[i] for i in range(len(given))]

    def moved(self, pairs: Sequence[Expr]) -> list[Expr]:
        """Emit pairs that were computed, not loaded. A tensor instruction takes neighbouring
        registers, and loaded words lie beside others: they would be moved for each instruction."""
        if self.wide:
            return list(pairs)
        (nothing,), found = mma.held([0], self.count), Local(len(pairs), "uint32")
        for i, pair in enumerate(pairs):
            found[i] = T.bitwise_xor(pair, nothing)
        return [found[i] for i in range(len(pairs))]


class EightBitFloats:
    """8-bit floats (e4m3). Scales of groups may be far below float16's, so that weights with their
    scale are multiplied by `enlarged`, and sums with them."""

    columns = (0, 1, 2, 3, 4, 5, 6, 7)
    factor, unit = 1.0, 1.0
    excess = None

    def __init__(self, packing: GpuPacking) -> None:
        self.enlarged = 1.0 if packing.by_row else 128.0
        assert E4M3_SCALE * E4M3_MOST * self.enlarged < _MOST

    def pairs(self, words: Words, t: Expr) -> list[Expr]:
        """See NibbleCodes."""
        (given,) = words
        found = Local(4, "uint32")
        for i, word in enumerate(given):
            for j, side in enumerate(("low", "high")):
                found[2 * i + j] = mma.halves_of_fp8(word, side)
        return [found[i] for i in range(4)]

    def weights(self, pairs: Sequence[Expr], scale: Expr, offset: Expr | None) -> list[Expr]:
        """Emit the weights of `pairs`: see _Exact."""
        return scaled(pairs, scale)


class _Exact:
    """Takes the excess off each pair: pair * `times` + `added` is (code - middle) * `unit`, to the
    bit."""

    excess: Any
    """Pairs, one a side; None = there is none to take off sums."""
    times, unit = 1.0, 1.0
    enlarged = 1.0
    """The factor by which the weights that `weights` emits are too large."""

    def weights(self, pairs: Sequence[Expr], scale: Expr, offset: Expr | None) -> list[Expr]:
        """Emit the weights of `pairs`: float16, each rounded once. scale and offset are pairs, the
        scale 1 / `unit` times the scheme's."""
        found = Local(len(pairs), "uint32")
        for i, pair in enumerate(pairs):
            exact = bind(mma.multiply_add(pair, _half(self.times), T.uint32(self.added[i // 2])))
            last = T.uint32(_ZEROS) if offset is None else offset
            found[i] = mma.multiply_add(exact, scale, last)
        return [found[i] for i in range(len(pairs))]

    @property
    def added(self) -> tuple[int, int]:
        """Pairs, one a side."""
        found: tuple[int, int] = self.excess
        return found


class NibbleCodes(_Exact):
    """Codes of 4 to 6 bits."""

    columns = (0, 2, 1, 3, 4, 6, 5, 7)
    """Of a unit, two a pair."""
    factor = 1.0

    def __init__(self, packing: GpuPacking) -> None:
        self.bits = packing.scheme.bits
        middle = packing.scheme.middle if packing.signed else 0
        self.excess = _negative(_ONE_K, middle), _negative(_SIXTY_FOUR, middle)
        self.flipped = middle
        """Stored codes have this bit flipped."""

    def pairs(self, words: Words, t: Expr) -> list[Expr]:
        """Emit the four pairs of unit t of a stretch."""
        *narrow, (nibbles,) = words
        shifted = bind(nibbles >> T.uint32(8))
        found = Local(4, "uint32")
        for i in range(4):
            high, mask = i // 2, (_LOW, _HIGH)[i // 2]
            flip = _twice(self.flipped) << 4 * high
            base = _twice((_ONE_K, _SIXTY_FOUR)[high])
            found[i] = mma.masked((nibbles, shifted)[i % 2], mask, base | flip)
        for plane, (word,) in zip(planes_of(self.bits), narrow, strict=False):
            self._join(found, plane, word, t)
        return [found[i] for i in range(4)]

    def _join(self, found: Local, plane: Plane, word: Expr, t: Expr) -> None:
        """Put the bits of a plane of 1 or 2 bits above the nibbles."""
        units = 8 // (2 * plane.bits)
        word = bind(word >> ((t % units) * (2 * plane.bits)).astype("uint32"))
        for i in range(4):
            high = i // 2
            to = plane.low + 4 * high
            by = to - plane.bits * high - 8 * (i % 2)
            mask = _twice(plane.mask) << to
            some = word << T.uint32(by) if by >= 0 else word >> T.uint32(-by)
            found[i] = mma.masked(bind(some), mask, found[i])


class ByteCodes(_Exact):
    """Codes of 8 bits."""

    columns = (0, 1, 2, 3, 4, 5, 6, 7)
    factor = 1.0

    def __init__(self, packing: GpuPacking) -> None:
        self.signed = packing.signed
        self.excess = (_negative(_ONE_K, 128 if self.signed else 0),) * 2

    def pairs(self, words: Words, t: Expr) -> list[Expr]:
        """See NibbleCodes."""
        ((first, second),) = words
        found = Local(4, "uint32")
        for i, word in enumerate((first, second)):
            code = bind(T.bitwise_xor(word, T.uint32(0x80808080))) if self.signed else word
            for j in range(2):
                found[2 * i + j] = mma.permuted(code, T.uint32(_ONE_K >> 8), _bytes(2 * j, 4))
        return [found[i] for i in range(4)]


class MagnitudeCodes(_Exact):
    """Codes that are a sign and a place in a table of magnitudes: of MXFP4, and as curves are
    stored (`order.py`), less a constant."""

    columns = (0, 1, 2, 3, 4, 5, 6, 7)
    times = 2.0**15

    def __init__(self, packing: GpuPacking, count: Expr) -> None:
        how = packing.scheme
        self.bits, self.below = how.bits, how.curve[1] if how.curve else 0
        values, step = _integers(how)
        self.factor, self.unit = 2.0**24 * step, 2.0**-9 / step
        # a curve's upper half is positive, MXFP4's lower
        self.flipped = _TOPS if how.curve else 0
        positive = values[how.middle :] if how.curve else values[: how.middle]
        self.table = _held([value + self.below for value in positive], count)
        self.excess = (_twice(0x8000 | self.below),) * 2

    def pairs(self, words: Words, t: Expr) -> list[Expr]:
        """See NibbleCodes."""
        *narrow, (nibbles,) = words
        signs = self._signs(nibbles, narrow[0][0] if narrow else None, t)
        # bytes of the lower half of a word: codes 0, 4, 1, 5; of the upper half: 2, 6, 3, 7
        halves = self._magnitudes(nibbles)
        found = Local(4, "uint32")
        for i in range(4):
            found[i] = mma.permuted(halves[i % 2], signs[i // 2], _spread(i // 2, i % 2))
        return [found[i] for i in range(4)]

    @property
    def added(self) -> tuple[int, int]:
        """See _Exact."""
        return (_twice(int(np.float16(-self.below * 2.0**-9).view(np.uint16))),) * 2

    def _magnitudes(self, nibbles: Expr) -> list[Expr]:
        if self.bits == 4:
            places = bind(T.bitwise_and(nibbles, T.uint32(0x77777777)))
            found = [places, bind(places >> T.uint32(16))]
            low, high = self.table
            return [bind(mma.permuted(low, high, half)) for half in found]
        # where its top bit is set, a selector yields the sign of a byte eight times: 0 of all here
        other = bind(T.bitwise_xor(nibbles, T.uint32(0x88888888)))
        halves = []
        for by in (0, 16):
            parts = []
            for table, places in ((self.table[:2], nibbles), (self.table[2:], other)):
                selector = bind(places >> T.uint32(by)) if by else places
                parts.append(bind(mma.permuted(table[0], table[1], selector)))
            halves.append(bind(T.bitwise_or(*parts)))
        return halves

    def _signs(self, nibbles: Expr, plane: Expr | None, t: Expr) -> list[Expr]:
        """The signs of codes 0 to 3 and of 4 to 7 as the top bits of bytes, set where negative."""
        if plane is None:
            some = [nibbles << T.uint32(4), nibbles]
        else:
            word = bind(plane << (T.int32(6) - t * 2).astype("uint32"))
            some = [word << T.uint32(1), word]
        return [bind(mma.masked(bind(word), _TOPS, self.flipped)) for word in some]


class ScaledMagnitudes(MagnitudeCodes):
    """NVFP4: each pair is multiplied by 128 times its group's scale, an 8-bit float. That is exact
    from a scale of 2**-4 on (the largest of a tensor is 448 as published), smaller ones lose bits
    below 2**-24. What is left is a factor of each row."""

    def __init__(self, packing: GpuPacking, count: Expr) -> None:
        super().__init__(packing, count)
        self.excess, self.factor = None, self.factor / 128
        self.enlarged = 1 / self.factor

    def weights(self, pairs: Sequence[Expr], scale: Expr, offset: Expr | None) -> list[Expr]:
        """Emit the weights of `pairs`, less the factor of their row."""
        return scaled(pairs, scale)


def scaled(pairs: Sequence[Expr], scale: Expr) -> list[Expr]:
    """Emit the products of pairs and a pair."""
    found = Local(len(pairs), "uint32")
    for i, pair in enumerate(pairs):
        found[i] = mma.multiply_add(pair, scale, T.uint32(_ZEROS))
    return [found[i] for i in range(len(pairs))]


class TableCodes(_Exact):
    """Codes of 4 bits that are places in any table of bytes."""

    columns = (0, 1, 2, 3, 4, 5, 6, 7)

    def __init__(self, packing: GpuPacking, count: Expr) -> None:
        values, self.factor = _integers(packing.scheme)
        self.unit = 1 / self.factor
        self.table = _held([value + 128 for value in values], count)
        self.excess = (_negative(_ONE_K, 128),) * 2

    def pairs(self, words: Words, t: Expr) -> list[Expr]:
        """See NibbleCodes."""
        ((nibbles,),) = words
        places = bind(T.bitwise_and(nibbles, T.uint32(0x77777777)))
        upper = bind(mma.masked(bind(nibbles >> T.uint32(1)), 0x44444444, 0x32103210))
        halves = []
        for by in (0, 16):
            place, chosen = (bind(word >> T.uint32(by)) for word in (places, upper))
            parts = [bind(mma.permuted(*self._two(i), place)) for i in range(2)]
            halves.append(bind(mma.permuted(parts[0], parts[1], chosen)))
        found = Local(4, "uint32")
        for i in range(4):  # as in MagnitudeCodes, each below the upper byte of 1024
            selector = i // 2 | 4 << 4 | (i // 2 + 2) << 8 | 4 << 12
            found[i] = mma.permuted(halves[i % 2], T.uint32(_ONE_K >> 8), selector)
        return [found[i] for i in range(4)]

    def _two(self, half: int) -> tuple[Expr, Expr]:
        return self.table[2 * half], self.table[2 * half + 1]


def _integers(how: Scheme) -> tuple[Sequence[int], float]:
    """The values of a table as int8 numbers, and their factor."""
    found = integers(how.table)
    assert found is not None
    return found


def _held(values: Sequence[int], count: Expr) -> list[Expr]:
    """Bytes in registers, four in each."""
    fours = [bytes(values[i : i + 4]) for i in range(0, len(values), 4)]
    return mma.held([int.from_bytes(four, "little") for four in fours], count)


def codes_of(packing: GpuPacking, count: Expr) -> Any:
    """How the codes of a packing become float16; count: rows of x."""
    kind = _kind(packing)
    more = (packing.scheme.table or packing.scheme.is_float) and not packing.scheme.is_e4m3
    return kind(packing, count) if more else kind(packing)


def columns_of(packing: GpuPacking) -> tuple[int, ...]:
    """The columns of a unit in the order of the codes, two a pair."""
    found: tuple[int, ...] = _kind(packing).columns
    return found


def _kind(packing: GpuPacking) -> Any:
    if packing.scheme.is_float:
        return FloatCodes
    if packing.scheme.is_e4m3:
        return EightBitFloats
    if packing.scheme.is_nvfp4:
        return ScaledMagnitudes
    if table := packing.scheme.table:
        even = all(table[i] == -table[i + len(table) // 2] for i in range(len(table) // 2))
        return MagnitudeCodes if packing.mirrored or even else TableCodes
    return ByteCodes if packing.scheme.bits == 8 else NibbleCodes


def _half(value: float) -> Expr:
    """A float16 twice."""
    return T.uint32(_twice(int(np.float16(value).view(np.uint16))))


def _twice(half: int) -> int:
    return half << 16 | half


def _negative(base: int, more: int) -> int:
    """A pair of minus (the float16 `base` + `more`)."""
    ulp = 1 if base == _ONE_K else 16
    return _twice(0x8000 | base + more * ulp)


def _bytes(first: int, other: int) -> int:
    """A selector of bytes `first`, `other`, `first` + 1, `other`."""
    return first | other << 4 | (first + 1) << 8 | other << 12


def _spread(side: int, half: int) -> int:
    """A selector of a pair: its magnitudes are bytes 0 and 2, or 1 and 3, each below its sign."""
    sign = 4 + 2 * half
    return side | sign << 4 | (side + 2) << 8 | (sign + 1) << 12
