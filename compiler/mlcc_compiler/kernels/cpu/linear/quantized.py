"""y = x @ weight.T for weights of 2 to 8 bits: byte dot products in 32-bit lanes.

Both sides are quantized by group along K (as GGUF's Q4_0 x Q8_0), so a group's sum is exact in
int32 and the float work is one conversion and two products for each group, or three with minima:

    y[i, j] += x_scale[i, s] * (scale[j, g] * (sum over the group of (code - zero) * x)
                                + minimum[j, g] * x_sum[i, g])

where s is the stretch of the activations that group g lies in, or that lies in it; of activations
of 16 bits, the sum of that for both parts (`rows.py`). The accumulator starts at -zero * x_sum,
which makes unsigned codes free. One kernel for every scheme, and for several weights of one input:
their tiles are shared out together, each weight with a loop of its own, and make one y. Not here:
how x is quantized (`rows.py`), the loops over tiles (`tile.py`), how a step's codes are unpacked
(`codes.py`), scales (`scales.py`), the byte order (`packing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from mlcc_compiler._tvm import B, IRBuilder, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa import Isa, dot4
from mlcc_compiler.kernels.cpu.linear.codes import HALF, StepCodes, dot_bits
from mlcc_compiler.kernels.cpu.linear.packing import COLUMN_VECTORS, CpuPacking
from mlcc_compiler.kernels.cpu.linear.scales import Scales
from mlcc_compiler.kernels.cpu.linear.tile import (
    OPAQUE,
    Output,
    Registers,
    for_each_tile,
    prefetch,
    rows_ahead,
)
from mlcc_compiler.quantization import Scheme

Expr = Any

Part = tuple[int, Scheme]
"""Rows and scheme of one of the weights that a product reads."""


def linear_quantized(
    isa: Isa, n_out: int, k: int, scheme: Scheme, bias: bool, result: str = "float32"
) -> Expr:
    """PrimFunc(xq i8[n, K], x_scale f32[n, K / group], x_sum i32[n, K / sums], weight, [bias], y).

    Group and sums are those of `packing.row_form`. The weight's tensors are those of
    `CpuPacking.tensors`; bias f32[N], y result[n, N].
    """
    return linear_merged(isa, ((n_out, scheme),), k, bias, result)


def linear_merged(
    isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, result: str = "float32"
) -> Expr:
    """The same for weights one below the other, each of its own scheme but of one `row_form`: their
    tensors follow one another, and y and bias have the columns of all."""
    forms = [CpuPacking(n, k, scheme, isa) for n, scheme in parts]
    rows, columns = forms[0].rows, sum(n for n, _ in parts)
    assert all(form.rows == rows for form in forms)
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE})
        handles = [B.arg(name, T.handle()) for name in ("xq", "x_scale", "x_sum")]
        weights = [
            [B.arg(f"{t.suffix[1:]}{i or ''}", B.buffer(t.shape, t.dtype)) for t in form.tensors]
            for i, form in enumerate(forms)
        ]
        bias_buffer = B.arg("bias", B.buffer((columns,), "float32")) if bias else None
        y_handle = B.arg("y", T.handle())
        n = T.int64()
        x, x_scale, x_sum = (
            B.match_buffer(h, (n, width), dtype)
            for h, (width, dtype) in zip(handles, input_shapes(forms[0], k), strict=True)
        )
        y = B.match_buffer(y_handle, (n, columns), result)
        first, kernels = 0, []
        for form, tensors in zip(forms, weights, strict=True):
            output = Output(form, y, bias_buffer, first=first)
            kernels.append(QuantizedTile(form, x, x_scale, x_sum, tensors, output))
            first += form.n
        bodies = [(form.tiles, kernel.tile) for form, kernel in zip(forms, kernels, strict=True)]
        for_each_tile(bodies, n, k, row_tiles(isa))
    return builder.get()


def input_shapes(form: CpuPacking, width: int) -> list[tuple[int, str]]:
    """Row length and dtype of the three arrays that stand for x of rows of `width`."""
    rows, all_parts = form.rows, width * form.isa.activation_parts
    counts = [(all_parts // rows.group, "float32"), (all_parts // rows.sums, "int32")]
    return [(all_parts, "int8"), *counts]


def row_tiles(isa: Isa) -> tuple[int, ...]:
    """An int32 and a float sum per row and column vector, beside codes and activations. Of rows in
    two parts, which have an int32 sum each, half as many."""
    sizes = (6, 4, 2, 1) if isa.registers >= 32 else (4, 2, 1)
    return sizes if isa.activation_parts == 1 else tuple(n // 2 for n in sizes if n > 1)


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
        self.shift = HALF if dot_bits(packing.scheme) == 8 and self.isa.signed_codes else 0

    def tile(self, rows: int, row: Expr, tile: Expr) -> None:
        """Emit it."""
        sums = Registers(rows * COLUMN_VECTORS, self.lanes, "float32")
        with B.unroll(rows * COLUMN_VECTORS) as i:
            sums.set(i, T.Broadcast(T.float32(0), self.lanes))
        with B.serial(self.p.stretches) as stretch:
            self._stretch(sums, rows, row, tile, stretch)
        self.output.store(sums, rows, row, tile)

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
            for step in range(part * each, (part + 1) * each):
                self._step(dots, [c.step(step) for c in codes], rows, row, self._k(stretch, step))
            self._scale(sums, dots, rows, row, tile, stretch, group)

    def _prefetch(self, name: str, tile: Expr, group: Expr, ahead: int) -> None:
        buffer = self.scales.parts.get(name)
        if buffer is not None and int(buffer.shape[1]) == self.p.groups:
            prefetch(buffer, tile, group, ahead)

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
        dots = Registers(rows * COLUMN_VECTORS, self.lanes, "int32")
        zeros = [
            self.scales.zero((tile, group), c * self.lanes, self.lanes)
            for c in range(COLUMN_VECTORS)
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
                dots.set(r * COLUMN_VECTORS + c, value)
        return dots

    def _dot(self, dots: Registers, rows: int, row: Expr, tile: Expr, stretch: Expr) -> None:
        """Add all steps of a stretch, a block at a time."""
        steps = self.p.steps

        def block(index: Expr, count: int) -> None:
            first = index * planes.BLOCK
            codes = self._block(tile, stretch, index, count)
            for step in range(count):
                k = self._k(stretch, first + step)
                self._step(dots, [c.step(step) for c in codes], rows, row, k)

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
                prefetch(self.codes, tile, first + v, ahead)
            kind = f"uint8x{4 * self.lanes}"
            return self.codes.vload([tile, first + v, 4 * c * self.lanes], kind)

        return [
            StepCodes(self.p.scheme, self.isa, steps, partial(load, c))
            for c in range(COLUMN_VECTORS)
        ]

    def _step(self, dots: Registers, codes: list[Expr], rows: int, row: Expr, k: Expr) -> None:
        """Four k of every row and column."""
        codes = [B.bind(c) for c in codes]
        bits = dot_bits(self.p.scheme)
        with B.unroll(rows) as r:
            four = T.reinterpret("int32", self.x.vload(list(self._at(self.x, row, r, k)), "int8x4"))
            x = B.bind(T.reinterpret(f"int8x{4 * self.lanes}", T.Broadcast(four, self.lanes)))
            for c in range(COLUMN_VECTORS):
                i = r * COLUMN_VECTORS + c
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
        columns = [c * self.lanes for c in range(COLUMN_VECTORS)]
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
            for c in range(COLUMN_VECTORS):
                i, dot = r // self.parts * COLUMN_VECTORS + c, dots.get(r * COLUMN_VECTORS + c)
                value = sums.get(i) + T.Cast(kind, dot) * (scales[c] * spread)
                sums.set(i, value + minima[c] * total if minima else value)


def _width(buffer: Expr) -> int:
    """Columns of a buffer, or of what looks like one."""
    return int(buffer.shape[1])
