"""The order of a weight's words for tensor cores: as the lanes of a warp read them, 16 bytes each.

`mma.m16n8k16` multiplies 16 rows of W, 16 columns of each. Its lane 4 g + t holds four columns of
row g and the same four of row g + 8. Any four will do if x has the same ones there. So lane t reads
whole units of eight neighbours, and a group of 32 columns takes two instructions: columns 0 to 3 of
each of its four units, then columns 4 to 7.

Words are those of `packing.py`, in another order. A tile of 16 rows is a row of the stored tensor,
[N / 16, 16 * words]. In it are, for each `span` groups:

    codes    [rows g, g + 8] [g] [t] [group]    unit t of each group, `span` words a lane
    scales   [g] [rows g, g + 8] [words]        read by all four lanes of a row

A warp reads 512 neighbouring bytes by one instruction and shuffles nothing. Other kernels read word
by word, through `Placed`. Nothing here knows TVM.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.quantization import Scheme
from mlcc_compiler.quantization.schemes import MIDDLE

Array = npt.NDArray[Any]

EDGE = 16
"""Rows of a tile."""
GROUP = 32
"""Columns that share a scale."""
LANES = 4
"""Lanes that share a row: units of a group."""
_HALF = EDGE // 2
_SPAN = 4
"""Most groups that a lane reads at a time: four words, 16 bytes."""


def fits(k: int, scheme: Scheme, parts: Sequence[range]) -> bool:
    """Whether a matrix of such rows, in such parts, can be stored in this order."""
    plain = scheme.bits == 4 and scheme.offset == MIDDLE and not scheme.table and not scheme.block
    whole = k % (2 * GROUP) == 0 and all(len(rows) % EDGE == 0 for rows in parts)
    return plain and whole and scheme.group == GROUP


def span_of(k: int) -> int:
    """Groups that a lane reads at a time."""
    return math.gcd(k // GROUP, _SPAN)


@dataclass(frozen=True)
class Region:
    """Words of a row that are stored together: from `first` on, `size` of them."""

    first: int
    size: int
    lanes: int
    """Lanes among which a row's words are dealt out; 1 = all lanes read the same."""
    words: int
    """That a lane reads at a time."""

    def place(self, row: Any, word: Any) -> Any:
        """Where a word of a row is in its tile; ints, arrays or expressions."""
        half, g = row // _HALF, row % _HALF
        at = word - self.first
        chunk = at // (self.words * self.lanes) * (EDGE * self.words * self.lanes)
        j = at // self.lanes % self.words
        team = g * 2 + half if self.lanes == 1 else half * (_HALF * self.lanes) + g * self.lanes
        lane = team if self.lanes == 1 else team + at % self.lanes
        return EDGE * self.first + chunk + lane * self.words + j


@dataclass(frozen=True)
class Order:
    """The places of all words of a tile, for rows of some regions."""

    regions: tuple[Region, ...]

    @property
    def words(self) -> int:
        """Words of a row."""
        return sum(region.size for region in self.regions)

    def place(self, row: Any, word: Any, region: int = 0) -> Any:
        """Where a word of a region is: (tile, place in it)."""
        return row // EDGE, self.regions[region].place(row % EDGE, word)

    def put(self, rows: Array) -> Array:
        """Rows of words [n, words] as tiles [n / 16, 16 * words]."""
        tiles = np.empty((len(rows) // EDGE, EDGE * self.words), rows.dtype)
        tiles[:, self._places().ravel()] = rows.reshape(tiles.shape)
        return tiles

    def take(self, tiles: Array) -> Array:
        """The inverse of `put`."""
        return np.ascontiguousarray(tiles[:, self._places().ravel()].reshape(-1, self.words))

    def _places(self) -> npt.NDArray[np.int64]:
        rows = np.arange(EDGE)[:, None]
        parts = [r.place(rows, np.arange(r.first, r.first + r.size)[None]) for r in self.regions]
        return np.concatenate(parts, axis=1)


def orders_of(k: int, codes: int, scales: int) -> tuple[Order, ...]:
    """The orders of codes and of scales, by their words in a row."""
    span = span_of(k)
    return Order((Region(0, codes, LANES, span),)), Order((Region(0, scales, 1, span // 2),))


class Placed:
    """A buffer of tiles, read as if it had rows."""

    def __init__(self, buffer: Any, order: Order) -> None:
        self.buffer, self.order = buffer, order
        self.dtype, self.shape = buffer.dtype, (int(buffer.shape[0]) * EDGE, order.words)

    def __getitem__(self, at: tuple[Any, Any]) -> Any:
        row, word = at
        tile, place = self.order.place(row, word)
        return self.buffer[tile, place]
