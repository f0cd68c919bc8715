"""Unpacks the codes of a step in a register: combines bit planes, and looks up tables.

`permute_lookup.py` is the variant for CPUs with 64-byte lookups.

The dot product takes bytes: 0 .. 2**bits - 1, or, for 8 bits where the instruction wants them
signed, minus 128. A table's values are 8-bit bytes: the integers that its values are multiples of,
plus 128.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa.isa import Isa, byte_shuffle
from mlcc_compiler.kernels.cpu.isa.vector_math import lanes_of
from mlcc_compiler.kernels.cpu.linear.weights.permute_lookup import PermuteLookup
from mlcc_compiler.quantization import Scheme

Expr = Any

HALF = 128
"""Excess of unsigned 8-bit bytes over their signed values."""


def dot_bits(scheme: Scheme) -> int:
    """Bits of the bytes that the dot product takes."""
    return 8 if scheme.table else scheme.bits


def looks_up(scheme: Scheme) -> bool:
    """Whether a CPU with permutes looks codes of the scheme up by them."""
    return bool(scheme.table) or scheme.bits < 4


class StepCodes:
    """The codes of a block's steps; `load(v)` gives vector v of it, u8 of `lanes` bytes."""

    def __init__(self, scheme: Scheme, isa: Isa, steps: int, load: Callable[[int], Expr]) -> None:
        self.scheme, self.isa, self.steps, self.load = scheme, isa, steps, load
        self.loaded: list[Expr] = []
        self.permuted = None
        if isa.has_permutes and looks_up(scheme):
            self.permuted = PermuteLookup(isa, scheme.bits, self._values(), self._vector)

    def step(self, step: int) -> Expr:
        """The codes of a step, all columns, for the dot product."""
        if self.permuted is not None and self.permuted.has(step):
            return self.permuted.step(step)
        code, first = None, 0
        for plane in planes.planes_of(self.scheme.bits):
            vector = first + step // plane.per_byte
            part = _bits(self._vector(vector), plane, step % plane.per_byte)
            code = part if code is None else code | part
            first += plane.vectors(self.steps)
        if not self.scheme.table:
            return self._as_taken(code)
        return byte_shuffle(self.isa, self._values(), code)

    def _values(self) -> list[int]:
        """The byte of each code, for less than 8 bits."""
        if not self.scheme.table:
            return list(range(self.scheme.levels + 1))
        found = planes.integers(self.scheme.table)
        assert found is not None
        shift = 0 if self.isa.signed_codes else HALF
        return [(v + shift) & 255 for v in found[0]]

    def _as_taken(self, code: Expr) -> Expr:
        """Convert 8-bit codes between the stored and the required signedness."""
        if self.scheme.bits < 8 or not self.isa.flips_codes:
            return code
        return code ^ T.Broadcast(T.uint8(HALF), lanes_of(code))

    def _vector(self, index: int) -> Expr:
        """Vectors are loaded in memory order, which is fastest."""
        while len(self.loaded) <= index:
            self.loaded.append(B.bind(self.load(len(self.loaded))))
        return self.loaded[index]


def _bits(vector: Expr, plane: planes.Plane, place: int) -> Expr:
    """The plane's bits of one step, at their position in the code. Shifts are of 16-bit numbers,
    which every instruction set has; bits from the neighbouring byte are masked away."""
    if plane.bits == 8:
        return vector
    lanes = lanes_of(vector)
    right = place * plane.bits - plane.low
    words = T.reinterpret(f"uint16x{lanes // 2}", vector)
    if right:
        by = T.Broadcast(T.uint16(abs(right)), lanes // 2)
        words = words >> by if right > 0 else words << by
    mask = T.Broadcast(T.uint8(plane.mask << plane.low), lanes)
    return T.reinterpret(f"uint8x{lanes}", words) & mask
