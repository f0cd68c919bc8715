"""The codes of a step in a register: bits of planes put together, and tables looked up.

`permuted.py` has what CPUs with a larger lookup do instead.

What a dot product takes are bytes: 0 .. 2**bits - 1, or, of 8 bits where the instruction wants them
signed, less 128. A table's values are such bytes of 8 bits: the integers that its values are
multiples of, plus 128.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa.isa import Isa, byte_shuffle
from mlcc_compiler.kernels.cpu.isa.vector_math import lanes_of
from mlcc_compiler.kernels.cpu.linear.permute_lookup import PermuteLookup
from mlcc_compiler.quantization import Scheme

Expr = Any

HALF = 128
"""What unsigned bytes of 8 bits are more than the number they stand for."""


def dot_bits(scheme: Scheme) -> int:
    """Bits of the bytes that the dot product takes."""
    return 8 if scheme.table else scheme.bits


class StepCodes:
    """The codes of steps of a block; `load(v)` gives vector v of it, u8 of `lanes` bytes."""

    def __init__(self, scheme: Scheme, isa: Isa, steps: int, load: Callable[[int], Expr]) -> None:
        self.scheme, self.isa, self.steps, self.load = scheme, isa, steps, load
        self.loaded: list[Expr] = []
        self.permuted = None
        if isa.has_permutes and (scheme.table or scheme.bits < 4):
            self.permuted = PermuteLookup(isa, scheme.bits, self._values(), self._vector)

    def step(self, step: int) -> Expr:
        """Of all columns, for the dot product."""
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
        """The byte of each code, of less than 8 bits."""
        if not self.scheme.table:
            return list(range(self.scheme.levels + 1))
        found = planes.integers(self.scheme.table)
        assert found is not None
        shift = 0 if self.isa.signed_codes else HALF
        return [(v + shift) & 255 for v in found[0]]

    def _as_taken(self, code: Expr) -> Expr:
        """8-bit codes that lie unsigned for one CPU and signed for another: less, or more, 128."""
        if self.scheme.bits < 8 or not self.isa.flips_codes:
            return code
        return code ^ T.Broadcast(T.uint8(HALF), lanes_of(code))

    def _vector(self, index: int) -> Expr:
        """Loaded in the order in which they lie, which is what memory is fastest at."""
        while len(self.loaded) <= index:
            self.loaded.append(B.bind(self.load(len(self.loaded))))
        return self.loaded[index]


def _bits(vector: Expr, plane: planes.Plane, place: int) -> Expr:
    """The plane's bits of one step, where they belong in the code. Shifts are of 16-bit numbers,
    which every instruction set has; what comes over from the neighbouring byte is masked away."""
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
