"""Reads a packed weight for register tiles: unpacks codes, widens scales, prefetches.

`unpacked_panel.py` is the variant that unpacks once for many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

from mlcc_compiler.ir._tvm import B
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.tile import Strip, prefetch, rows_ahead
from mlcc_compiler.kernels.cpu.linear.weights.codes import StepCodes
from mlcc_compiler.kernels.cpu.linear.weights.scales import Scales

Expr = Any


class StoredWeight:
    """Reads the tensors of `CpuPacking.tensors`, for the strip of a tile that was entered."""

    def __init__(self, packing: CpuPacking, weights: Sequence[Expr]) -> None:
        self.p, self.codes, self.numbers = packing, weights[0], Scales(packing, weights)
        self.levels: dict[tuple[str, int], Expr] = {}
        self.middle = self.numbers.middle
        """The zero point of all codes; None: each group has its own."""

    def enter(self, tile: Expr, group: Expr, strip: Strip) -> None:
        """Emit what groups from this one to the end of its block have in common."""
        self.strip, self.levels = strip, {}
        if self.p.scheme.block:
            for name, c in product(("scales", "minima"), range(strip.vectors)):
                if name in self.numbers.parts:
                    at, lanes = (tile, group), self.p.isa.lanes
                    level = self.numbers.level(name, at, strip.column(c), lanes)
                    self.levels[name, c] = B.bind(level)

    def prefetch_scales(self, tile: Expr, group: Expr) -> None:
        """Prefetch the scales of a later group. Two-level integers need no prefetch: they are half
        a line a group, and prefetching each line twice costs more than it gains."""
        if self.p.scheme.block:
            return
        of_stretch = max(self.p.rows.group // self.p.group, 1)
        ahead = max(rows_ahead(self.codes) // max(self.p.vectors // of_stretch, 1), 1)
        prefetch(self.numbers.parts["scales"], tile, group, ahead, self.strip)

    def block(self, tile: Expr, stretch: Expr, block: Expr, steps: int) -> list[StepCodes]:
        """The codes of a block of steps, for each column vector."""
        isa, strip = self.p.isa, self.strip
        each = planes.vectors_of(self.p.scheme.bits, planes.BLOCK)
        first = B.bind(stretch * self.p.vectors + block * each)
        ahead = rows_ahead(self.codes)
        asked: set[int] = set()

        def load(c: int, v: int) -> Expr:
            if v not in asked:
                asked.add(v)
                prefetch(self.codes, tile, first + v, ahead, strip)
            kind = f"uint8x{planes.STEP * isa.lanes}"
            return self.codes.vload([tile, first + v, strip.column(c) * planes.STEP], kind)

        return [
            StepCodes(self.p.scheme, isa, steps, partial(load, c)) for c in range(strip.vectors)
        ]

    def scale(self, tile: Expr, group: Expr, c: int) -> Expr:
        """f32 of the strip's c-th register of columns."""
        column, level = self.strip.column(c), self.levels.get(("scales", c))
        return self.numbers.scale((tile, group), column, self.p.isa.lanes, level)

    def minimum(self, tile: Expr, group: Expr, c: int) -> Expr:
        """f32 minimum of the strip's c-th register of columns."""
        column, level = self.strip.column(c), self.levels.get(("minima", c))
        return self.numbers.minimum((tile, group), column, self.p.isa.lanes, level)


def for_blocks(steps: int, body: Callable[[Expr, int], None]) -> None:
    """Emit body(block, steps in it) over the blocks of `steps` steps."""
    whole = steps // planes.BLOCK
    if whole == 1:
        body(0, planes.BLOCK)
    elif whole:
        with B.serial(whole) as i:
            body(i, planes.BLOCK)
    if steps % planes.BLOCK:
        body(whole, steps % planes.BLOCK)
