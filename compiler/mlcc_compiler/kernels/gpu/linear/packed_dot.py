"""Products of one or two rows of x by packed 8-bit integers: WGSL's `dot4I8Packed`.

Of each 32 neighbours of x, a thread's step along K, the largest magnitude becomes 127 and all are
rounded to 8 bits (as a CPU's kernels and llama.cpp's Q8_1 do), in registers, once for all rows of
W of the thread. A word of four codes of W is then multiplied and added up by one instruction, where
floats take a conversion and a multiply-add a weight. Codes of a table are looked up two at a time
in workgroup memory, which costs less than to compute or select each of them.

More rows of x would each have to be rounded by every thread for the few rows of W it has: from
three on `gemv.py` multiplies floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.load_units import LARGEST, LoadedRow, unrolled_units
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    int32,
    real,
    shared,
    when,
)
from mlcc_compiler.kernels.planes import STEP

STRETCH = LARGEST * UNIT
"""Neighbours of x with one scale."""
_COLUMNS = 2
_MAGIC = 1.5 * 2**23
"""Added to a float32 below 2**22, it leaves the nearest integer in the lowest bits."""


def takes(gpu: Gpu, reader: WeightReader, columns: int, units: int) -> bool:
    """Whether `columns` rows of x, in steps of `units` units, are multiplied in this way."""
    scheme = reader.packing.scheme
    if not gpu.packed_dot or scheme.is_float or columns > _COLUMNS or units != LARGEST:
        return False
    return bool(scheme.table) or reader.packing.signed or scheme.bits < 8


class PackedProducts:
    """Emits the products of a step. Created at a launch's start: it may fill workgroup memory."""

    def __init__(self, reader: WeightReader, x: Any, xs: Sequence[Any]) -> None:
        self.reader, self.x, self.xs = reader, x, xs
        self.table: Any = None

    def fill_table(self, thread: Expr, threads: int) -> None:
        """Fill the table of pairs, of codes that are places in one."""
        codes = self.reader.codes
        if not codes.table:
            return
        bits = self.reader.packing.scheme.bits
        size = 1 << 2 * bits
        self.table = shared((size,), "uint32")

        def fill(at: Expr) -> None:
            pair = at.astype("uint32")
            low, high = (codes.table_byte(pair >> T.uint32(shift)) for shift in (0, bits))
            store(self.table, T.bitwise_or(low, high << T.uint32(8)), at)

        with T.serial(ceil_div(size, threads)) as i:
            at = bind(int32(i) * threads + thread)
            if size % threads:
                with when(at < size):
                    fill(at)
            else:
                fill(at)
        barrier()

    def step(self, rows: list[Expr], first: Expr, sums: Local) -> None:
        """sums[column * rows + row] += the products of the units from `first` on."""
        rounded = [_Rounded(self.x, at, first) for at in self.xs]
        span = LARGEST if self.reader.packing.group % STRETCH == 0 else 1
        totals: dict[int, Expr] = {}

        def unit(offset: int, at: Expr, held: list[LoadedRow]) -> None:
            for r, row in enumerate(held):
                words = [self._bytes(word) for word in row.step_words(at)]
                for m, one in enumerate(rounded):
                    i, dot = m * len(rows) + r, one.dot(words, offset)
                    totals[i] = bind(totals[i] + dot) if offset % span else dot
                    if (offset + 1) % span:
                        continue  # the next unit has the same scale
                    assert row.scaling is not None
                    total = totals[i].astype("float32") * row.scaling.scale
                    if row.scaling.offset is not None:
                        total = total + one.sum(offset + 1 - span, span) * row.scaling.offset
                    sums[i] = sums[i] + total * one.scale

        unrolled_units(self.reader, rows, first, unit)

    def finish(self) -> None:
        """After the last step: the table's memory may be taken for something else."""
        if self.table is not None:
            barrier()

    def _bytes(self, word: Expr) -> Expr:
        """The four signed bytes of a word of codes."""
        if self.table is None:
            return word
        bits = self.reader.packing.scheme.bits
        mask, after = (1 << bits) - 1, word >> T.uint32(8 - bits)
        if bits > 4:  # else nothing of a code is left beside the next one
            word, after = (
                T.bitwise_and(part, T.uint32(0x10001 * one))
                for part, one in ((word, mask), (after, mask << bits))
            )
        pairs = bind(T.bitwise_or(word, after))
        place = T.uint32(mask << bits | mask)
        low, high = (
            self.table[T.bitwise_and(pairs >> T.uint32(shift), place).astype("int32")]
            for shift in (0, 16)
        )
        return bind(T.bitwise_or(low, high << T.uint32(16)))


class _Rounded:
    """A stretch of a row of x as packed bytes, with their scale."""

    def __init__(self, x: Any, row: Any, first: Expr) -> None:
        values = [
            value for unit in range(LARGEST) for value in load(x, row, (first + unit) * UNIT, UNIT)
        ]
        largest = bind(reduce(tirx.max, [tirx.abs(value) for value in values]))
        self.scale = bind(largest * real(1 / 127))
        inverse = bind(T.Select(largest > real(0), real(127) / largest, real(0)))
        self.words = Local(STRETCH // STEP, "uint32")
        for i in range(STRETCH // STEP):
            self.words[i] = _packed(values[i * STEP : (i + 1) * STEP], inverse)
        self._sums: dict[int, Expr] = {}

    def dot(self, words: Sequence[Expr], offset: int) -> Expr:
        """The sum of the products of a unit's bytes with those of W."""
        first = offset * len(words)
        parts = [_dot(self.words[first + i], word) for i, word in enumerate(words)]
        return bind(reduce(lambda a, b: a + b, parts))

    def sum(self, offset: int, span: int) -> Expr:
        """The sum of the bytes of `span` units."""
        if offset not in self._sums:
            ones = [T.uint32(0x01010101)] * (UNIT // STEP)
            units = [self.dot(ones, at) for at in range(offset, offset + span)]
            self._sums[offset] = bind(reduce(lambda a, b: a + b, units).astype("float32"))
        return self._sums[offset]


def _packed(values: Sequence[Expr], inverse: Expr) -> Expr:
    """Four numbers times `inverse`, each rounded to a signed byte, the first in the lowest."""
    word = None
    for i, value in enumerate(values):
        bits = T.reinterpret("uint32", bind(value * inverse + real(_MAGIC)))
        byte = T.bitwise_and(bits, T.uint32(255)) << T.uint32(8 * i)
        word = byte if word is None else T.bitwise_or(word, byte)
    return word


def _dot(a: Expr, b: Expr) -> Expr:
    return T.call_extern("int32", "dot4I8Packed", a, b)
