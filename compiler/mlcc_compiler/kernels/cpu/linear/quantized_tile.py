"""`QuantizedTile`: the register tile of a product with codes, by byte dot products of one row each.
It makes exact sums of each group, scales and accumulates them.

The kernel around the tiles, and the formula, are in `quantized.py`; reading a weight is
`stored_weight.py` and, unpacked for many rows, `unpacked_panel.py`; the byte order `packing.py`.
`row_pairs.py` has the variant for Arm's smmla, which multiplies two rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa.isa import dot4
from mlcc_compiler.kernels.cpu.linear.called_tiles import SumsKey
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.row_sums import RowSums
from mlcc_compiler.kernels.cpu.linear.tasks import TileBody
from mlcc_compiler.kernels.cpu.linear.tile import Output, Registers, Strip, for_each_strip
from mlcc_compiler.kernels.cpu.linear.weights.codes import HALF, dot_bits
from mlcc_compiler.kernels.cpu.linear.weights.stored_weight import StoredWeight, for_blocks
from mlcc_compiler.kernels.cpu.linear.weights.unpacked_panel import Codes, UnpackedPanel, middle_of

Expr = Any


AllRows = dict[SumsKey, RowSums]
"""Sums of all rows, which panels read, by group and factor."""


class QuantizedTile:
    """The body of one register tile: some rows of x times a tile of the weight's columns.

    Where activations have two parts, each row of x is two rows of codes, except for the float sums;
    the second part follows the first, half a row of `x` later.
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
        self.stored = StoredWeight(packing, weights)
        self.weight: StoredWeight | UnpackedPanel = self.stored
        self.output, self.parts = output, packing.isa.activation_parts
        self.strip = Strip(0, 1, 0, packing.isa.lanes)
        """The one that is being emitted."""
        self.shift = HALF if dot_bits(packing.scheme) == 8 and self.isa.signed_codes else 0
        self.all_rows: AllRows = {}
        self._get_ready()

    def _get_ready(self) -> None:
        """Row sums for the weight as it is read: see `_start` and `_scale`."""
        self.starts, self.totals = map(self._sums, self._factors(self.weight.middle))

    def _factors(self, middle: int | None) -> tuple[int | None, int | None]:
        """Factors of `starts` and `totals`, see `RowSums`; 0: no sums needed."""
        less = self._less(middle)
        return 1 if less is None else less, None if self.stored.numbers.minima else 0

    def _sums(self, factor: int | None) -> RowSums | None:
        if factor == 0:
            return None
        found = self.all_rows.get((self.p.group, factor))
        if found and isinstance(self.weight, UnpackedPanel):
            return found
        return RowSums(self.p, self.x_scale, self.x_sum, self._at, factor)

    def sum_all_rows(self, n: Expr, ready: AllRows) -> None:
        """Emit, before any tile is unpacked, sums of all n rows, except those that are `ready`:
        from weights that read the same rows."""
        for group, factor in self.keys_of_all_rows():
            if (group, factor) not in ready:
                sums = RowSums(self.p, self.x_scale, self.x_sum, self._at, factor)
                sums.fill_all(n)
                ready[group, factor] = sums

    def keys_of_all_rows(self) -> tuple[SumsKey, ...]:
        """Keys of the sums of all rows that panels of the weight read."""
        if self.parts > 1:
            return ()  # a row is two rows of codes
        factors = dict.fromkeys(self._factors(middle_of(self.p, self.stored)))
        return tuple((self.p.group, factor) for factor in factors if factor != 0)

    def read_all_rows(self, key: SumsKey, n: Expr, pointer: Expr) -> None:
        """Have panels read sums of all n rows, made by another kernel's `sum_all_rows`."""
        sums = RowSums(self.p, self.x_scale, self.x_sum, self._at, key[1])
        sums.read_all(n, pointer)
        self.all_rows[key] = sums

    def tile(self, rows: int, row: Expr, tile: Expr) -> None:
        """Emit a register tile."""

        def strip(strip: Strip) -> None:
            self.strip, count = strip, rows * strip.vectors
            if isinstance(self.weight, UnpackedPanel):
                self.output.prefetch_rows(rows, row, tile, strip)
            sums = Registers(count, self.lanes, "float32")
            with B.unroll(count) as i:
                sums.set(i, T.Broadcast(T.float32(0), self.lanes))
            for_spans(self.p, lambda first, n: self._span(sums, rows, row, tile, first, n))
            self.output.store(sums, rows, row, tile, strip)

        for_each_strip(self.p, rows, strip)

    def _span(
        self, sums: Registers, rows: int, row: Expr, tile: Expr, first: Expr, count: Expr
    ) -> None:
        """Add some stretches, after preparing what they share and the sums of rows."""
        self.weight.enter(tile, self.p.first_group(first), self.strip)
        for ready in (self.starts, self.totals):
            if ready is not None:
                ready.fill(rows * self.parts, row, first)
        with B.serial(count) as i:
            self._stretch(sums, rows, row, tile, B.bind(first + i))

    def unpacked(self, tile: Expr) -> TileBody:
        """Emit the unpacking of a tile; returns the emitter of its register tiles."""
        panel = UnpackedPanel(self.p, self.stored)
        panel.fill(tile)
        return self.on(panel).tile

    def on(self, panel: UnpackedPanel) -> QuantizedTile:
        """This tile's body reading from an unpacked panel."""
        other = copy(self)
        other.weight = panel
        other._get_ready()
        return other

    def _less(self, middle: int | None) -> int | None:
        """Factor of activation sums at the start of accumulators: minus the zero point in the dot
        product's form; None if it differs by column."""
        return None if middle is None else self.shift - middle

    def _at(self, buffer: Expr, row: Expr, r: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Location in x, its scales or its sums of the r-th row of codes from `row` on."""
        if self.parts == 1:
            return row + r, column
        return row + r // self.parts, r % self.parts * (_width(buffer) // self.parts) + column

    def _stretch(self, sums: Registers, rows: int, row: Expr, tile: Expr, stretch: Expr) -> None:
        """Add a stretch: a group, part of one, or a few."""
        p, rows = self.p, rows * self.parts
        count = max(p.rows.group // p.group, 1)
        if count == 1:
            group = self.p.first_group(stretch)
            self.weight.prefetch_scales(tile, group)
            dots = self._start(rows, row, tile, stretch, group)
            self._dot(dots, rows, row, tile, stretch)
            self._scale(sums, dots, rows, row, tile, stretch, group)
            return
        each = p.steps // count
        codes = self.weight.block(tile, stretch, 0, p.steps)
        for part in range(count):
            group = B.bind(stretch * count + part)
            self.weight.prefetch_scales(tile, group)
            dots = self._start(rows, row, tile, stretch, group)
            steps = range(part * each, (part + 1) * each)
            self._steps(dots, codes, steps, rows, row, self._k(stretch, steps.start))
            self._scale(sums, dots, rows, row, tile, stretch, group)

    def _start(self, rows: int, row: Expr, tile: Expr, stretch: Expr, group: Expr) -> Registers:
        """Accumulators at -zero * x_sum."""
        dots, strip = Registers(rows * self.strip.vectors, self.lanes, "int32"), self.strip
        less: list[Expr] = []
        if self.weight.middle is None:
            at, columns = (tile, group), [strip.column(c) for c in range(strip.vectors)]
            zeros = [self.stored.numbers.zero(at, column, self.lanes) for column in columns]
            less = [B.bind(T.Broadcast(T.int32(self.shift), self.lanes) - zero) for zero in zeros]
        with B.unroll(rows) as r:
            first = self.starts.at(r, stretch, group) if self.starts else T.int32(0)
            start = T.Broadcast(first, self.lanes)
            for c in range(strip.vectors):
                dots.set(r * strip.vectors + c, start * less[c] if less else start)
        return dots

    def _dot(self, dots: Registers, rows: int, row: Expr, tile: Expr, stretch: Expr) -> None:
        """Add all steps of a stretch, a block at a time."""

        def block(index: Expr, count: int) -> None:
            first = index * planes.BLOCK
            codes = self.weight.block(tile, stretch, index, count)
            self._steps(dots, codes, range(count), rows, row, self._k(stretch, first))

        for_blocks(self.p.steps, block)

    def _k(self, stretch: Expr, step: Expr) -> Expr:
        """First activation of a step."""
        return stretch * self.p.rows.group + step * planes.STEP

    def _steps(
        self,
        dots: Registers,
        codes: Sequence[Codes],
        steps: range,
        rows: int,
        row: Expr,
        k: Expr,
    ) -> None:
        """Add some steps of a block, whose activations begin at k: four of every row and column."""
        for i, step in enumerate(steps):
            self._step(dots, [c.step(step) for c in codes], rows, row, k + i * planes.STEP)

    def _step(self, dots: Registers, codes: list[Expr], rows: int, row: Expr, k: Expr) -> None:
        """Add one step."""
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
        kind = f"float32x{self.lanes}"
        columns = range(self.strip.vectors)
        scales = [self.weight.scale(tile, group, c) for c in columns]
        minima = [self.weight.minimum(tile, group, c) for c in columns] if self.totals else []
        with B.unroll(rows) as r:
            x_scale = self.x_scale[self._at(self.x_scale, row, r, stretch)]
            spread = B.bind(T.Broadcast(x_scale, self.lanes))
            if self.totals:
                total = B.bind(T.Broadcast(self.totals.at(r, stretch, group), self.lanes))
            for c in range(self.strip.vectors):
                i, dot = (
                    r // self.parts * self.strip.vectors + c,
                    dots.get(r * self.strip.vectors + c),
                )
                value = sums.get(i) + T.Cast(kind, dot) * (scales[c] * spread)
                sums.set(i, value + minima[c] * total if minima else value)


def for_spans(packing: CpuPacking, body: Callable[[Expr, Expr], None]) -> None:
    """Emit body(first stretch, stretches) over a tile's spans."""
    each, all_of = packing.span, packing.stretches
    if all_of <= each:
        body(T.int64(0), T.int64(all_of))
        return
    with B.serial(-(-all_of // each)) as i:
        first = B.bind(i * each)
        body(first, T.int64(each) if all_of % each == 0 else T.min(each, all_of - first))


def _width(buffer: Expr) -> int:
    """Columns of a buffer or a buffer view."""
    return int(buffer.shape[1])
