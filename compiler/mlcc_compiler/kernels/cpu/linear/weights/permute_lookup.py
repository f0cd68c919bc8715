"""Looks codes up by six bits of an index, at any bit position (`Isa.has_permutes`).

Bits of planes stay at their position, which the table accounts for, and bits of other steps beside
them are ignored: no masks and fewer shifts. With 3 bits, an index serves two steps. Codes without a
table also use one where that is less work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import lanes_of

Expr = Any

_INDICES = 64


class PermuteLookup:
    """The steps of a block, of 2 to 5 bits; `vector(i)` gives the i-th vector of its planes: that
    of one bit, if there is one, before those of the others."""

    def __init__(
        self, isa: Isa, bits: int, values: Sequence[int], vector: Callable[[int], Expr]
    ) -> None:
        """`values`: the byte of each code."""
        self.isa, self.bits, self.values, self.vector = isa, bits, values, vector
        self.cached_kernel: dict[int, Expr] = {}
        """What two steps share, by the first of them."""

    def has(self, step: int) -> bool:
        """Whether a step's bytes are less work this way: of a byte's four 2-bit codes, the first
        needs a mask only, and the last would need a shift here, too."""
        return self.bits > 2 or step % 4 in (1, 2)

    def step(self, step: int) -> Expr:
        """Bytes of a step for which `has` is true, u8 of `lanes`."""
        of_two = step % 2
        if self.bits == 2:
            return self._found(self.vector(step // 4), step % 4 * 2, 2)
        if self.bits == 3:
            return self._found(self._pair(step - of_two), 2 * of_two, 2, 4 + of_two)
        nibbles = _right(self.vector(self.bits % 2 + step // 2), 4 * of_two)
        if self.bits == 5:
            nibbles = _joined(self.isa, nibbles, self._fifth(step - of_two))
        return self._found(nibbles, 0, 4, 4 + of_two)

    def _pair(self, first: int) -> Expr:
        """For two steps: the lower two bits of each, then the third of each."""
        if first not in self.cached_kernel:
            low = _right(self.vector(1 + first // 4), first % 4 * 2)
            self.cached_kernel[first] = B.bind(
                _joined(self.isa, low, _right(self.vector(0), first - 4))
            )
        return self.cached_kernel[first]

    def _fifth(self, first: int) -> Expr:
        """The fifth bits of two steps, in bits 4 and 5."""
        if first not in self.cached_kernel:
            self.cached_kernel[first] = B.bind(_right(self.vector(0), first - 4))
        return self.cached_kernel[first]

    def _found(self, index: Expr, low: int, count: int, top: int = 0) -> Expr:
        """Values of codes whose lower bits start at bit `low` of the index, and whose last one, if
        there are more than `count`, is bit `top`."""
        more = self.bits > count
        codes = [
            (i >> low & ((1 << count) - 1)) | ((i >> top & 1) << count if more else 0)
            for i in range(_INDICES)
        ]
        table = byte_vector([self.values[code] for code in codes])
        return byte_permute(self.isa, table, index)


def _right(vector: Expr, by: int) -> Expr:
    """Shifted right, or left if `by` is negative, as 16-bit numbers: bits from the neighbouring
    byte land where they are ignored."""
    if by == 0:
        return vector
    lanes = lanes_of(vector)
    words = T.reinterpret(f"uint16x{lanes // 2}", vector)
    count = T.Broadcast(T.uint16(abs(by)), lanes // 2)
    return T.reinterpret(f"uint8x{lanes}", words >> count if by > 0 else words << count)


def _joined(isa: Isa, low: Expr, high: Expr) -> Expr:
    """The lower four bits of one and the upper ones of the other."""
    return bit_select(isa, T.Broadcast(T.uint8(0xF0), lanes_of(low)), high, low)


def byte_permute(isa: Isa, table: Expr, index: Expr) -> Expr:
    """table[index & 63] for every byte of u8x64 `index`, for a table of 64; the two upper bits are
    ignored."""
    return _call("llvm.x86.avx512.permvar.qi.512", f"uint8x{4 * isa.lanes}", table, index)


def byte_vector(values: Sequence[int]) -> Expr:
    """Constant bytes, a multiple of 8, as u8."""
    words = [int.from_bytes(bytes(values[i : i + 4]), "little") for i in range(0, len(values), 4)]
    whole = T.Shuffle([T.uint32(word) for word in words], list(range(len(words))))
    return T.reinterpret(f"uint8x{len(values)}", whole)


def bit_select(isa: Isa, mask: Expr, one: Expr, zero: Expr) -> Expr:
    """Each bit of u8x64 of `one` where that of the mask is 1, else of `zero`: one instruction,
    which LLVM does not find by itself if the mask is constant."""
    words = f"uint32x{isa.lanes}"
    three = [T.reinterpret(words, each) for each in (mask, one, zero)]
    found = _call("llvm.x86.avx512.pternlog.d.512", words, *three, T.int32(0b11001010))
    return T.reinterpret(f"uint8x{4 * isa.lanes}", found)


def _call(name: str, dtype: str, *args: Expr) -> Expr:
    return T.call_llvm_pure_intrin(dtype, T.llvm_lookup_intrinsic_id(name), *args)
