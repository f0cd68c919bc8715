"""y = x @ weight.T for 13 to 31 rows and codes, by AMX's products of bytes: with the bits that the
register tiles of `quantized.py` give.

A group of 32 k is half of what a tile of bytes holds, and its sums leave the registers to be
scaled. So AMX saves the dot products alone: of 16 rows, 32 columns and 32 k, 256 instructions. A
kernel runs

    for each tile of 32 columns, in parallel:
        for each chunk of groups:
            unpack the tile's codes to signed bytes, less their zero point; codes of 8 bits are
                multiplied where they lie, and their zero point is taken off the sums
            multiply: exact sums of each group, 16 rows at a time, to scratch
            scale them and add them to those of the chunks before, 8 rows at a time

Of 16 rows by 32 x 32 weights these three take about 22, 26 and 20 ns on a Xeon (Emerald Rapids,
3.6 GHz), VNNI 80 to 110. They add up: tiles are loaded and stored through the two ports that
vectors use. Fewer rows than 13 are as fast by VNNI.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa import amx
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.called_tiles import (
    CalledTiles,
    QuantizedRows,
    SumsKey,
    TileArguments,
    tile_function,
)
from mlcc_compiler.kernels.cpu.linear.packing import COLUMN_VECTORS, STRETCH, CpuPacking
from mlcc_compiler.kernels.cpu.linear.quantized import OneWeight, Part, merged_kernel
from mlcc_compiler.kernels.cpu.linear.row_sums import RowSums
from mlcc_compiler.kernels.cpu.linear.tasks import TiledWeight, of_tile
from mlcc_compiler.kernels.cpu.linear.tile import Output, Registers, Strip, prefetch, rows_ahead
from mlcc_compiler.kernels.cpu.linear.weights.codes import HALF
from mlcc_compiler.kernels.cpu.linear.weights.stored_weight import StoredWeight
from mlcc_compiler.quantization.schemes import ZEROS

Expr = Any

LEAST = 13
"""Rows from which on this is faster than register tiles, on such a Xeon."""
_CHUNK = 8
"""Groups of a chunk at most: 8 KiB of codes, 32 KiB of sums of 32 rows."""
_STRIP = 16
"""Rows of a strip: those of a tile register."""
_ROWS = 8
"""Rows that are scaled at a time: 16 registers of sums."""
_SIGNED_BITS = 7
"""Bits of codes that are still signed bytes less a zero point of their column."""


def multiplies_bytes(isa: Isa, parts: tuple[Part, ...], k: int) -> bool:
    """Whether `LEAST` rows and more are multiplied so."""
    if not isa.has_tiles or isa.activation_parts > 1:
        return False
    return all(_fits(CpuPacking(n, k, scheme, isa)) for n, scheme in parts)


def _fits(packing: CpuPacking) -> bool:
    """Whether groups are whole stretches of 32, and codes without their zero point are bytes."""
    how = packing.scheme
    if how.is_float or packing.width != amx.SIDE or packing.group % STRETCH:
        return False
    return packing.rows.group == STRETCH and (how.offset != ZEROS or how.bits <= _SIGNED_BITS)


def linear_bytes(isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, result: str) -> Expr:
    """The PrimFunc of `linear_merged` for `LEAST` to 32 rows."""

    def body(rows: QuantizedRows, weights: list[OneWeight]) -> list[str]:
        with amx.imported():
            products = [ByteProduct(rows, *weight) for weight in weights]
            called = [
                CalledTiles(tile_bytes, rows, *weight, each.keys)
                for weight, each in zip(weights, products, strict=True)
            ]
            for each, own in zip(products, called, strict=True):
                own.sums = each.sum_rows()
            tiled = [TiledWeight(own.form.tiles, own.call) for own in called]
            upper = B.bind(T.min(rows.n, _STRIP))
            tasks = sum(each.tiles for each in tiled)

            def one(weight: int, own: Expr) -> None:
                tiled[weight].few(T.int64(0), rows.n, own)

            with B.parallel(tasks) as index, amx.byte_tiles(upper):
                of_tile(tiled, index, one)
        return [each.name for each in called]

    return merged_kernel(isa, parts, k, bias, result, body)


def tile_bytes(form: CpuPacking, bias: bool, result: str, keys: tuple[SumsKey, ...]) -> Expr:
    """The `tile_function` of a product of bytes: of all rows, of a thread whose tile registers are
    configured."""

    def body(given: TileArguments) -> None:
        product = ByteProduct(given.rows, form, given.weights, given.output)
        product.read_sums(given.sums)
        with amx.imported():
            product.tile(given.tile)

    return tile_function(form, bias, result, keys, body)


class ByteProduct:
    """Emits the product of all rows with a tile of one weight."""

    def __init__(
        self, rows: QuantizedRows, packing: CpuPacking, weights: list[Expr], output: Output
    ) -> None:
        self.rows, self.p, self.output = rows, packing, output
        self.lanes, self.stretches = packing.isa.lanes, packing.stretches
        self.stored = StoredWeight(packing, weights)
        self.minima = self.stored.numbers.minima
        how = packing.scheme
        self.direct = how.bits == planes.STEP * 2 and not how.table and how.offset != ZEROS
        """Whether codes are bytes as they are stored: they are not unpacked."""
        self.codes, self.start = weights[0], 0
        if self.direct:
            assert self.stored.middle is not None
            self.start = (HALF if packing.flips else 0) - self.stored.middle
        self.chunk = next(c for c in range(_CHUNK, 0, -1) if self.stretches % c == 0)
        self.strip = Strip(0, 1, COLUMN_VECTORS, self.lanes)
        self.half = _STRIP * self.lanes
        """Sums of one register of columns and a strip of rows."""
        self.sums: dict[int | None, RowSums] = {}
        """Sums of all rows, by factor."""

    @property
    def keys(self) -> list[SumsKey]:
        """Of the sums of all rows: what minima and zero points are multiplied with."""
        factors = [None] * self.minima + [self.start] * (self.start != 0)
        return [(self.p.group, factor) for factor in factors]

    def sum_rows(self) -> list[Expr]:
        """Emit these sums; returns where they are."""
        every = [self._sums(factor) for _, factor in self.keys]
        for sums in every:
            sums.fill_all(self.rows.n)
        return [sums.buffer.data for sums in every]

    def read_sums(self, ready: Mapping[SumsKey, Expr]) -> None:
        """Have sums of `sum_rows` read."""
        for key, pointer in ready.items():
            self.sums[key[1]] = self._sums(key[1])
            self.sums[key[1]].read_all(self.rows.n, pointer)
            self.sums[key[1]].fill(1, T.int64(0), T.int64(0))

    def _sums(self, factor: int | None) -> RowSums:
        return RowSums(self.p, self.rows.x_scale, self.rows.x_sum, _at, factor)

    def tile(self, tile: Expr) -> None:
        """Emit all rows of a tile."""
        if not self.direct:
            shape = (1, self.chunk * planes.BLOCK, planes.STEP * self.p.width)
            self.codes = B.alloc_buffer(shape, "int8")
        self.exact = B.alloc_buffer((2, self.chunk * COLUMN_VECTORS * self.half), "int32")
        kept = (4 * _STRIP // _ROWS if self.stretches > self.chunk else 1, _ROWS * self.p.width)
        self.kept = B.alloc_buffer(kept, "float32")
        with B.serial(self.stretches // self.chunk) as chunk:
            first = B.bind(chunk * self.chunk)
            if not self.direct:
                with B.serial(self.chunk) as i:
                    self._unpack(tile, B.bind(first + i), i)
            self._multiply(tile, first)
            with B.serial((self.rows.n + (_ROWS - 1)) // _ROWS) as part:
                self._scale(tile, first, part)

    def _unpack(self, tile: Expr, stretch: Expr, i: Expr) -> None:
        """Codes, scales and minima of 32 k."""
        group, stored = B.bind(self.p.first_group(stretch)), self.stored
        stored.enter(tile, group, self.strip)
        stored.prefetch_scales(tile, group)
        found = stored.block(tile, stretch, 0, planes.BLOCK)
        zeros = [self._zero(tile, group, c) for c in range(COLUMN_VECTORS)]
        for step in range(planes.BLOCK):
            for c, codes in enumerate(found):
                signed = T.reinterpret(f"int8x{4 * self.lanes}", codes.step(step) - zeros[c])
                place = T.Ramp(c * planes.STEP * self.lanes, 1, planes.STEP * self.lanes)
                B.buffer_store(self.codes, signed, [0, i * planes.BLOCK + step, place])

    def _zero(self, tile: Expr, group: Expr, c: int) -> Expr:
        """The zero point of a register of columns, in each byte."""
        if self.stored.middle is not None:
            return T.Broadcast(T.uint8(self.stored.middle), planes.STEP * self.lanes)
        zeros = self.stored.numbers.zero((tile, group), self.strip.column(c), self.lanes)
        four = zeros * T.Broadcast(T.int32(0x01010101), self.lanes)
        return B.bind(T.reinterpret(f"uint8x{planes.STEP * self.lanes}", four))

    def _multiply(self, tile: Expr, first: Expr) -> None:
        """The exact sums of a chunk. Two products go side by side: of two groups and the same rows,
        or of the first and the last 16 rows."""
        with B.If(self.rows.n <= _STRIP):
            with B.Then(), B.serial(-(-self.chunk // 2)) as pair:
                one = B.bind(2 * pair)
                other = B.bind(T.min(one + 1, T.int64(self.chunk - 1)))
                self._products(tile, first, (one, other), (0, 0))
            with B.Else(), B.serial(self.chunk) as i:
                self._products(tile, first, (i, i), (0, 1))

    def _products(
        self, tile: Expr, first: Expr, groups: tuple[Expr, Expr], strips: tuple[int, int]
    ) -> None:
        if self.direct:
            for i in dict.fromkeys(groups):
                for step in range(planes.BLOCK):
                    place = (first + i) * planes.BLOCK + step
                    prefetch(self.codes, tile, place, rows_ahead(self.codes), self.strip)
        x, codes, sums = [], [], []
        for i, strip in zip(groups, strips, strict=True):
            row = strip * (self.rows.n - _STRIP)
            x.append(T.address_of(self.rows.x[row, (first + i) * STRETCH]))
            place = (tile, first + i) if self.direct else (0, i)
            codes.append(T.address_of(self.codes[place[0], place[1] * planes.BLOCK, 0]))
            sums.append(T.address_of(self.exact[strip, i * COLUMN_VECTORS * self.half]))
        pitch = planes.STEP * self.p.width
        signed = self.p.flips or not self.direct
        amx.multiply_bytes(x, self.p.k, codes, pitch, sums, 4 * self.half, signed)

    def _scale(self, tile: Expr, first: Expr, part: Expr) -> None:
        """Scale and add a chunk of 8 rows. The last 8 may be some of those before: they are
        computed twice."""
        row = B.bind(T.min(part * _ROWS, self.rows.n - _ROWS))
        strip = B.bind(part // (_STRIP // _ROWS))
        at = B.bind(row - strip * (self.rows.n - _STRIP))
        sums = [Registers(_ROWS, self.lanes, "float32") for _ in range(COLUMN_VECTORS)]
        kind, each = f"float32x{self.lanes}", _ROWS * self.lanes
        for c, some in enumerate(sums):
            for r in range(_ROWS):
                some.set(r, T.Broadcast(T.float32(0), self.lanes))
            with B.If(first > 0), B.Then():
                for r in range(_ROWS):
                    some.set(r, self.kept.vload([part, c * each + r * self.lanes], kind))
        with B.serial(self.chunk) as i:
            self._add_group(sums, (strip, at, row), tile, B.bind(first + i), i)
        with B.If(first == self.stretches - self.chunk):
            with B.Then():
                for c, some in enumerate(sums):
                    self.output.store(
                        some, _ROWS, row, tile, Strip(c, COLUMN_VECTORS, 1, self.lanes)
                    )
            with B.Else():
                for c, some in enumerate(sums):
                    for r in range(_ROWS):
                        place = T.Ramp(c * each + r * self.lanes, 1, self.lanes)
                        B.buffer_store(self.kept, some.get(r), [part, place])

    def _add_group(
        self,
        sums: list[Registers],
        place: tuple[Expr, Expr, Expr],
        tile: Expr,
        stretch: Expr,
        i: Expr,
    ) -> None:
        """As `QuantizedTile` does it, operation by operation. `place`: the strip, the row in it,
        and the row of x."""
        (strip, at, row), kind = place, f"float32x{self.lanes}"
        group = B.bind(self.p.first_group(stretch))
        self.stored.enter(tile, group, self.strip)
        for c, some in enumerate(sums):
            scale = self.stored.scale(tile, group, c)
            least = self.stored.minimum(tile, group, c) if self.minima else None
            for r in range(_ROWS):
                spread = T.Broadcast(self.rows.x_scale[row + r, stretch], self.lanes)
                exact = (i * COLUMN_VECTORS + c) * self.half + (at + r) * self.lanes
                dot = self.exact.vload([strip, exact], f"int32x{self.lanes}")
                if self.start:
                    start = self.sums[self.start].at(row + r, stretch, group)
                    dot = dot + T.Broadcast(start, self.lanes)
                value = some.get(r) + T.Cast(kind, dot) * (scale * spread)
                if least is not None:
                    total = self.sums[None].at(row + r, stretch, group)
                    value = value + least * T.Broadcast(total, self.lanes)
                some.set(r, value)


def _at(buffer: Expr, row: Expr, r: Expr, column: Expr) -> tuple[Expr, Expr]:
    return row + r, column
