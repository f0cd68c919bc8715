"""Bit planes: codes of 2 to 8 bits as planes of 8, 4, 2 and 1 bits; numpy only, the same for CPUs
and GPUs.

Kernels take four neighbouring weights at a time, a byte each, as one 32-bit lane: a step. A plane
of p bits holds p bits of every code, and a byte of it those of 8 / p consecutive steps, the first
in its lowest bits; so a shift and a mask extract the bits of a whole register, and planes are
combined by "or". 6-bit codes are a plane of 4 bits and one of 2.

Steps come in blocks of eight (32 weights), within which each plane has whole bytes; a last block
may have fewer, and unused bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

BLOCK = 8
"""Steps of a block."""
STEP = 4
"""Weights of a step."""


@dataclass(frozen=True)
class Plane:
    """`bits` of each code, starting at bit `low`."""

    bits: int
    low: int

    @property
    def per_byte(self) -> int:
        """Steps in a byte."""
        return 8 // self.bits

    @property
    def mask(self) -> int:
        return (1 << self.bits) - 1

    def vectors(self, steps: int) -> int:
        """Bytes per column for `steps` steps."""
        return -(-steps // self.per_byte)


def planes_of(bits: int) -> tuple[Plane, ...]:
    """The planes of a code, in reading order: the narrowest first, as most steps share it. The
    widest has the lowest bits."""
    found, low = [], 0
    for width in (8, 4, 2, 1):
        if bits & width:
            found.append(Plane(width, low))
            low += width
    return tuple(reversed(found))


def vectors_of(bits: int, steps: int) -> int:
    """Bytes per column for `steps` steps of codes, in all planes."""
    return sum(plane.vectors(count) for count in block_steps(steps) for plane in planes_of(bits))


def block_steps(steps: int) -> Iterator[int]:
    """Number of steps of each block."""
    yield from [BLOCK] * (steps // BLOCK)
    if steps % BLOCK:
        yield steps % BLOCK


def pack(codes: Bytes, bits: int) -> Bytes:
    """Codes u8 [..., steps, lanes] -> planes u8 [..., vectors_of(bits, steps), lanes]."""
    steps = codes.shape[-2]
    found, whole = [], steps // BLOCK * BLOCK
    if whole:  # all whole blocks at once
        shape = (*codes.shape[:-2], whole // BLOCK, BLOCK, codes.shape[-1])
        blocks = pack_block(codes[..., :whole, :].reshape(shape), bits)
        found.append(blocks.reshape(*codes.shape[:-2], -1, codes.shape[-1]))
    if whole < steps:
        found.append(pack_block(codes[..., whole:, :], bits))
    return found[0] if len(found) == 1 else np.concatenate(found, axis=-2)


def unpack(packed: Bytes, bits: int, steps: int) -> Bytes:
    """The inverse of `pack`."""
    found, at = [], 0
    for count in block_steps(steps):
        size = sum(plane.vectors(count) for plane in planes_of(bits))
        found.append(unpack_block(packed[..., at : at + size, :], bits, count))
        at += size
    return np.concatenate(found, axis=-2)


def pack_block(codes: Bytes, bits: int) -> Bytes:
    """Any number of steps u8 [..., steps, lanes] as one block: all of a plane, then the next."""
    found = []
    for plane in planes_of(bits):
        part = codes
        if plane.bits < bits:
            part = (codes >> np.uint8(plane.low)) & np.uint8(plane.mask)
        if plane.bits == 8:
            found.append(part)
            continue
        packed = np.array(part[..., 0 :: plane.per_byte, :])
        for place in range(1, plane.per_byte):
            some = part[..., place :: plane.per_byte, :]
            packed[..., : some.shape[-2], :] |= some << np.uint8(place * plane.bits)
        found.append(packed)
    return found[0] if len(found) == 1 else np.concatenate(found, axis=-2)


def unpack_block(packed: Bytes, bits: int, steps: int) -> Bytes:
    """The inverse of `pack_block`."""
    codes, at = np.zeros((*packed.shape[:-2], steps, packed.shape[-1]), np.uint8), 0
    for plane in planes_of(bits):
        size = plane.vectors(steps)
        for place in range(plane.per_byte):
            some = codes[..., place :: plane.per_byte, :]
            part = packed[..., at : at + some.shape[-2], :] >> np.uint8(place * plane.bits)
            some |= (part & np.uint8(plane.mask)) << np.uint8(plane.low)
        at += size
    return codes


def integers(table: Sequence[float]) -> tuple[tuple[int, ...], float] | None:
    """A table as int8 numbers and the factor that scales them to its values; None if there is
    none."""
    for factor in (1.0, 0.5):
        whole = [value / factor for value in table]
        if all(v == int(v) and abs(v) < 128 for v in whole):
            return tuple(int(v) for v in whole), factor
    return None
