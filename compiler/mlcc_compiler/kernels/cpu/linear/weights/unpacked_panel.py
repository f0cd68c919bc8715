"""A weight's tile unpacked for many rows: its codes as the bytes that the dot product takes, its
scales and minima in float32, in a core's own caches.

A register tile has few rows, so without it each would unpack the whole tile again: for some formats
as much work as its products. The numbers are those that `stored_weight.py` reads, so results are
bit-identical (the packing step of Goto & van de Geijn, 2008).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.tile import Strip, for_each_strip
from mlcc_compiler.kernels.cpu.linear.weights.codes import StepCodes
from mlcc_compiler.kernels.cpu.linear.weights.stored_weight import StoredWeight, for_blocks

Expr = Any


_MOVED_BITS = 6
"""Largest code size to which as many levels may be added: sums of two products still fit 16 bits
(AVX2).
"""


def middle_of(packing: CpuPacking, stored: StoredWeight) -> int | None:
    """The common zero point of all codes in a panel of the weight; None: each group has its own."""
    return packing.scheme.levels if _moves(packing, stored) else stored.middle


def unpacks_few(packing: CpuPacking) -> bool:
    """Whether few rows read a panel, too: where a code is looked up by comparisons, on the oldest
    CPUs. Unpacking is then most of the work, and its code is emitted once, not for each register
    tile."""
    return bool(packing.scheme.table) and not packing.isa.shuffles_bytes


def _moves(packing: CpuPacking, stored: StoredWeight) -> bool:
    return stored.middle is None and packing.scheme.bits <= _MOVED_BITS


class UnpackedPanel:
    """Has the interface of `StoredWeight`, for the one tile that it was filled with."""

    def __init__(self, packing: CpuPacking, stored: StoredWeight) -> None:
        self.p, self.stored, self.numbers = packing, stored, stored.numbers
        steps = packing.k // planes.STEP
        self.codes = B.alloc_buffer((steps, planes.STEP * packing.width), "uint8")
        each = (packing.groups, packing.width)
        self.scales = B.alloc_buffer(each, "float32")
        self.minima = B.alloc_buffer(each, "float32") if self.numbers.minima else None
        self.migration = _moves(packing, stored)
        """A column's zero points are made all the same."""
        self.middle = middle_of(packing, stored)

    def fill(self, tile: Expr) -> None:
        """Unpack a tile."""
        steps = self.p.steps

        def strip(strip: Strip) -> None:
            with B.serial(self.p.groups) as group:
                self.stored.enter(tile, group, strip)
                self._fill_scales(tile, group, strip)
            with B.serial(self.p.stretches) as stretch:
                for_blocks(steps, lambda i, n: self._fill_block(tile, stretch, i, n, strip))

        for_each_strip(self.p, 2, strip)

    def _fill_block(self, tile: Expr, stretch: Expr, block: Expr, steps: int, strip: Strip) -> None:
        found = self.stored.block(tile, stretch, block, steps)
        first = B.bind(self._step(stretch, block))
        each = steps // max(self.p.rows.group // self.p.group, 1)
        for step in range(steps):
            for c, codes in enumerate(found):
                code = codes.step(step)
                if self.migration:
                    group = self.p.first_group(stretch) + step // each
                    code = code + self._to_middle(tile, group, strip.column(c))
                place = T.Ramp(strip.column(c) * planes.STEP, 1, planes.STEP * self.p.isa.lanes)
                B.buffer_store(self.codes, code, [first + step, place])

    def _to_middle(self, tile: Expr, group: Expr, column: Expr) -> Expr:
        """Amount by which codes are raised to the largest zero point: four bytes a column."""
        lanes = self.p.isa.lanes
        zeros = self.numbers.zero((tile, group), column, lanes)
        more = T.Broadcast(T.int32(self.p.scheme.levels), lanes) - zeros
        four = more * T.Broadcast(T.int32(0x01010101), lanes)
        return B.bind(T.reinterpret(f"uint8x{planes.STEP * lanes}", four))

    def _fill_scales(self, tile: Expr, group: Expr, strip: Strip) -> None:
        self.stored.prefetch_scales(tile, group)
        for c in range(strip.vectors):
            place = [group, T.Ramp(strip.column(c), 1, self.p.isa.lanes)]
            B.buffer_store(self.scales, self.stored.scale(tile, group, c), place)
            if self.minima is not None:
                B.buffer_store(self.minima, self.stored.minimum(tile, group, c), place)

    def _step(self, stretch: Expr, block: Expr) -> Expr:
        return stretch * self.p.steps + block * planes.BLOCK

    def enter(self, tile: Expr, group: Expr, strip: Strip) -> None:
        """Select the strip that later calls refer to; nothing else to prepare."""
        self.strip = strip

    def prefetch_scales(self, tile: Expr, group: Expr) -> None:
        """Nothing: all data is in cache."""

    def block(self, tile: Expr, stretch: Expr, block: Expr, steps: int) -> Sequence[UnpackedCodes]:
        """The codes of a block of steps, for each column vector."""
        first = B.bind(self._step(stretch, block))
        lanes = planes.STEP * self.p.isa.lanes
        columns = [self.strip.column(c) * planes.STEP for c in range(self.strip.vectors)]
        return [UnpackedCodes(self.codes, first, column, lanes) for column in columns]

    def scale(self, tile: Expr, group: Expr, c: int) -> Expr:
        """f32 of the strip's c-th register of columns."""
        return self._load(self.scales, group, c)

    def minimum(self, tile: Expr, group: Expr, c: int) -> Expr:
        """f32 minimum of the strip's c-th register of columns."""
        return self._load(self.minima, group, c)

    def _load(self, buffer: Any, group: Expr, c: int) -> Expr:
        lanes = self.p.isa.lanes
        return B.bind(buffer.vload([group, self.strip.column(c)], f"float32x{lanes}"))


@dataclass(frozen=True)
class UnpackedCodes:
    """`StepCodes` that are unpacked already."""

    buffer: Expr
    first: Expr
    column: Expr
    lanes: int

    def step(self, step: int) -> Expr:
        return self.buffer.vload([self.first + step, self.column], f"uint8x{self.lanes}")


Codes = StepCodes | UnpackedCodes
