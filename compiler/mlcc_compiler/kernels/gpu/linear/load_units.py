"""Reads a row of a weight in steps of a few units, loading and converting shared data once.

A word of 1-bit codes serves four units and one of 2-bit codes two; a scale serves two or more, a
float16 of a two-level scheme all that are read at a time. A step is nested loops, each of which
starts with the loads that all its units share. (A unit alone loads all of it: three words for eight
weights of 3 bits and their scale.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, units_of
from mlcc_compiler.kernels.gpu.linear.weight_reader import Block, Scaling, WeightReader
from mlcc_compiler.kernels.gpu.workgroup import bind, int32
from mlcc_compiler.kernels.planes import Plane

LARGEST = 4
"""Largest number of units of a step: the weights of a group of 32."""


def step_units(reader: WeightReader) -> int:
    """Number of units to read at a time. Rows have whole steps."""
    return next(
        u for u in (LARGEST, 2, 1) if reader.units % u == 0 and (u == 1 or reader.shares_scale(u))
    )


@dataclass(frozen=True)
class LoadedRow:
    """A row's data, loaded for all units of a loop."""

    reader: WeightReader
    row: Expr
    words: dict[Plane, list[Expr]] = field(default_factory=dict)
    scalings: Callable[[Expr], Scaling] | None = None
    scaling: Scaling | None = None

    def loaded(self, unit: Expr, size: int) -> LoadedRow:
        """Emit the loads that the `size` units from `unit` on share, unless already loaded."""
        codes, buffer = self.reader.codes, self.reader.buffers[0]
        words = dict(self.words)
        for plane in codes.planes:
            if plane not in words and size <= units_of(plane):
                words[plane] = codes.words(buffer, self.row, unit, plane)
        return replace(self, words=words)

    def scaled(self, unit: Expr, size: int) -> LoadedRow:
        """Emit the arithmetic of their scale, unless already done."""
        scalings = self.scalings or self.reader.scalings(self.row, unit)
        scaling = self.scaling
        if scaling is None and size * UNIT <= self.reader.packing.group:
            scaling = scalings(unit)
        return replace(self, scalings=scalings, scaling=scaling)

    def block(self, unit: Expr) -> Block:
        """Emit the arithmetic of a unit."""
        return Block(self.reader.codes.decode(self._loaded_words, unit), self.scaling)

    def step_words(self, unit: Expr) -> list[Expr]:
        """Emit the words of a unit's codes, a byte each."""
        return self.reader.codes.step_words(self._loaded_words, unit)

    @property
    def _loaded_words(self) -> list[list[Expr]]:
        return [self.words[plane] for plane in self.reader.codes.planes]


def each_unit(
    reader: WeightReader,
    rows: Sequence[Expr],
    first: Expr,
    unroll: bool,
    body: Callable[[Expr, list[LoadedRow]], None],
) -> None:
    """Emit body(unit, its rows) for the units of a step, one after the other or in loops."""
    _loop(
        _loops(reader),
        first,
        [LoadedRow(reader, row) for row in rows],
        T.unroll if unroll else T.serial,
        body,
    )


def unrolled_units(
    reader: WeightReader,
    rows: Sequence[Expr],
    first: Expr,
    body: Callable[[int, Expr, list[LoadedRow]], None],
) -> None:
    """Emit body(number, unit, its rows) for the units of a step, one after the other."""

    def each(sizes: list[int], offset: int, rows: list[LoadedRow]) -> None:
        size, *smaller = sizes
        unit = bind(first + offset)
        rows = [row.loaded(unit, size).scaled(unit, size) for row in rows]
        if not smaller:
            body(offset, unit, rows)
            return
        for at in range(offset, offset + size, smaller[0]):
            each(smaller, at, rows)

    each(_loops(reader), 0, [LoadedRow(reader, row) for row in rows])


def _loops(reader: WeightReader) -> list[int]:
    """Units of a step, and of each loop within: those that share words or a scale."""
    sizes = {units_of(plane) for plane in reader.codes.planes} | {reader.packing.group // UNIT}
    whole = step_units(reader)
    return [whole, *sorted((s for s in sizes | {1} if s < whole), reverse=True)]


def _loop(
    sizes: list[int],
    first: Expr,
    rows: list[LoadedRow],
    kind: Callable[[int], Any],
    body: Callable[[Expr, list[LoadedRow]], None],
) -> None:
    size, *smaller = sizes
    rows = [row.loaded(first, size) for row in rows]
    rows = [row.scaled(first, size) for row in rows]
    if not smaller:
        body(first, rows)
        return
    with kind(size // smaller[0]) as i:
        _loop(smaller, bind(first + int32(i) * smaller[0]), rows, kind, body)
