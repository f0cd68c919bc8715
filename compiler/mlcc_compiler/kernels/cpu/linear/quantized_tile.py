"""One register tile of a product with codes: exact sums of each group, scaled and added up.

What a kernel does with the tiles is in `quantized.py`, with the formula; how a step's codes are
unpacked in `codes.py`, scales in `scales.py`, the byte order in `packing.py`. `row_pairs.py` has
the same for instructions that multiply two rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mlcc_compiler._tvm import B, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa import dot4
from mlcc_compiler.kernels.cpu.linear.codes import HALF, StepCodes, dot_bits
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.scales import Scales
from mlcc_compiler.kernels.cpu.linear.tile import (
    Output,
    Registers,
    Strip,
    for_each_strip,
    prefetch,
    rows_ahead,
)

Expr = Any


class QuantizedTile:
    """The body of one register tile: some rows of x times a tile of the weight's columns.

    Where activations have two parts, each row of x is two rows of codes to everything here but the
    float sums; the second lies behind the first, half a row of `x` on.
    """

    def __init__(
        self,
        packing: CpuPacking,
        x: Expr,
        x_scale: Expr,
        x_sum: Expr,
        weights: Sequence[Expr],
        output: Output,
    ) -> None:
        self.p, self.isa, self.lanes = packing, packing.isa, packing.isa.lanes
        self.x, self.x_scale, self.x_sum = x, x_scale, x_sum
        self.codes, self.scales = weights[0], Scales(packing, weights)
        self.output, self.parts = output, packing.isa.activation_parts
        self.strip = Strip(0, 1, 0, packing.isa.lanes)
        """The one that is being emitted."""
        self.shift = HALF if dot_bits(packing.scheme) == 8 and self.isa.signed_codes else 0

    def tile(self, rows: int, row: Expr, tile: Expr) -> None:
        """Emit it."""

        def strip(strip: Strip) -> None:
            self.strip, count = strip, rows * strip.vectors
            sums = Registers(count, self.lanes, "float32")
            with B.unroll(count) as i:
                sums.set(i, T.Broadcast(T.float32(0), self.lanes))
            with B.serial(self.p.stretches) as stretch:
                self._stretch(sums, rows, row, tile, stretch)
            self.output.store(sums, rows, row, tile, strip)

        for_each_strip(self.p, rows, strip)

    def _at(self, buffer: Expr, row: Expr, r: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Where in x, its scales or its sums the r-th row of codes from `row` on lies."""
        if self.parts == 1:
            return row + r, column
        return row + r // self.parts, r % self.parts * (_width(buffer) // self.parts) + column

    def _stretch(self, sums: Registers, rows: int, row: Expr, tile: Expr, stretch: Expr) -> None:
        """Add a stretch: a group, part of one, or a few."""
        p, rows = self.p, rows * self.parts
        count = max(p.rows.group // p.group, 1)
        each = p.steps // count
        ahead = max(rows_ahead(self.codes) // max(p.vectors // count, 1), 1)
        if count == 1:
            group = stretch // (p.group // p.rows.group)
            for name in ("scales", "sub_scales", "sub_minima"):
                self._prefetch(name, tile, group, ahead)
            dots = self._start(rows, row, tile, stretch, group)
            self._dot(dots, rows, row, tile, stretch)
            self._scale(sums, dots, rows, row, tile, stretch, group)
            return
        codes = self._block(tile, stretch, 0, p.steps)
        for part in range(count):
            group = B.bind(stretch * count + part)
            for name in ("sub_scales", "sub_minima") if p.scheme.block else ("scales",):
                self._prefetch(name, tile, group, ahead)
            dots = self._start(rows, row, tile, stretch, group)
            steps = range(part * each, (part + 1) * each)
            self._steps(dots, codes, steps, rows, row, self._k(stretch, steps.start))
            self._scale(sums, dots, rows, row, tile, stretch, group)

    def _prefetch(self, name: str, tile: Expr, group: Expr, ahead: int) -> None:
        buffer = self.scales.parts.get(name)
        if buffer is not None and int(buffer.shape[1]) == self.p.groups:
            prefetch(buffer, tile, group, ahead, self.strip)

    def _x_sum(self, row: Expr, r: Expr, stretch: Expr, group: Expr) -> Expr:
        """The sum of the activations that a group meets in a stretch."""

        def at(column: Expr) -> Expr:
            return self.x_sum[self._at(self.x_sum, row, r, column)]

        per_stretch = self.p.rows.group // self.p.rows.sums
        if per_stretch == 1:
            return at(stretch)
        if self.p.group == self.p.rows.sums:
            return at(group)
        first = stretch * per_stretch
        return at(first) + at(first + 1)

    def _start(self, rows: int, row: Expr, tile: Expr, stretch: Expr, group: Expr) -> Registers:
        """Accumulators at -zero * x_sum, with zero as the bytes in the dot product have it."""
        dots = Registers(rows * self.strip.vectors, self.lanes, "int32")
        zeros = [
            self.scales.zero((tile, group), self.strip.column(c), self.lanes)
            for c in range(self.strip.vectors)
        ]
        with B.unroll(rows) as r:
            for c, zero in enumerate(zeros):
                if isinstance(zero, int):
                    less = self.shift - zero
                    start = self._x_sum(row, r, stretch, group) * T.int32(less)
                    value = T.Broadcast(start if less else T.int32(0), self.lanes)
                else:
                    x_sum = T.Broadcast(self._x_sum(row, r, stretch, group), self.lanes)
                    value = (T.Broadcast(T.int32(self.shift), self.lanes) - zero) * x_sum
                dots.set(r * self.strip.vectors + c, value)
        return dots

    def _dot(self, dots: Registers, rows: int, row: Expr, tile: Expr, stretch: Expr) -> None:
        """Add all steps of a stretch, a block at a time."""
        steps = self.p.steps

        def block(index: Expr, count: int) -> None:
            first = index * planes.BLOCK
            codes = self._block(tile, stretch, index, count)
            self._steps(dots, codes, range(count), rows, row, self._k(stretch, first))

        whole = steps // planes.BLOCK
        if whole == 1:
            block(0, planes.BLOCK)
        elif whole:
            with B.serial(whole) as i:
                block(i, planes.BLOCK)
        if steps % planes.BLOCK:
            block(whole, steps % planes.BLOCK)

    def _k(self, stretch: Expr, step: Expr) -> Expr:
        """Where a step's activations begin."""
        return stretch * self.p.rows.group + step * planes.STEP

    def _block(self, tile: Expr, stretch: Expr, block: Expr, steps: int) -> list[StepCodes]:
        """The codes of a block of steps, for each column vector."""
        each = planes.vectors_of(self.p.scheme.bits, planes.BLOCK)
        first = B.bind(stretch * self.p.vectors + block * each)
        ahead = rows_ahead(self.codes)
        asked: set[int] = set()

        def load(c: int, v: int) -> Expr:
            if v not in asked:
                asked.add(v)
                prefetch(self.codes, tile, first + v, ahead, self.strip)
            kind = f"uint8x{4 * self.lanes}"
            return self.codes.vload([tile, first + v, self.strip.column(c) * planes.STEP], kind)

        return [
            StepCodes(self.p.scheme, self.isa, steps, partial(load, c))
            for c in range(self.strip.vectors)
        ]

    def _steps(
        self,
        dots: Registers,
        codes: Sequence[StepCodes],
        steps: range,
        rows: int,
        row: Expr,
        k: Expr,
    ) -> None:
        """Some steps of a block, whose activations begin at k: four of every row and column."""
        for i, step in enumerate(steps):
            self._step(dots, [c.step(step) for c in codes], rows, row, k + i * planes.STEP)

    def _step(self, dots: Registers, codes: list[Expr], rows: int, row: Expr, k: Expr) -> None:
        """One of them."""
        codes = [B.bind(c) for c in codes]
        bits = dot_bits(self.p.scheme)
        with B.unroll(rows) as r:
            four = T.reinterpret("int32", self.x.vload(list(self._at(self.x, row, r, k)), "int8x4"))
            x = B.bind(T.reinterpret(f"int8x{4 * self.lanes}", T.Broadcast(four, self.lanes)))
            for c in range(self.strip.vectors):
                i = r * self.strip.vectors + c
                dots.set(i, dot4(self.isa, dots.get(i), codes[c], x, bits))

    def _scale(
        self,
        sums: Registers,
        dots: Registers,
        rows: int,
        row: Expr,
        tile: Expr,
        stretch: Expr,
        group: Expr,
    ) -> None:
        """Add a group's exact sums, scaled, to the float sums."""
        kind, at = f"float32x{self.lanes}", (tile, group)
        columns = [self.strip.column(c) for c in range(self.strip.vectors)]
        scales = [self.scales.scale(at, c, self.lanes) for c in columns]
        minima = []
        if self.scales.minima:
            minima = [self.scales.minimum(at, c, self.lanes) for c in columns]
        with B.unroll(rows) as r:
            x_scale = B.bind(self.x_scale[self._at(self.x_scale, row, r, stretch)])
            spread = B.bind(T.Broadcast(x_scale, self.lanes))
            if minima:
                x_sum = T.Cast("float32", self._x_sum(row, r, stretch, group)) * x_scale
                total = B.bind(T.Broadcast(x_sum, self.lanes))
            for c in range(self.strip.vectors):
                i, dot = (
                    r // self.parts * self.strip.vectors + c,
                    dots.get(r * self.strip.vectors + c),
                )
                value = sums.get(i) + T.Cast(kind, dot) * (scales[c] * spread)
                sums.set(i, value + minima[c] * total if minima else value)


def _width(buffer: Expr) -> int:
    """Columns of a buffer, or of what looks like one."""
    return int(buffer.shape[1])
