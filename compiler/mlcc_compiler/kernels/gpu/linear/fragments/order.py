"""The order of a weight's words for tensor cores: as the lanes of a warp read them, 16 bytes each.

`mma.m16n8k16` multiplies 16 rows of W, 16 columns of each. Its lane 4 g + t holds four columns of
row g and the same four of row g + 8. Any four will do if x has the same ones there. So lane t reads
whole units of eight neighbours, and 32 columns, a stretch, take two instructions: four columns of
each of its units, then the other four.

Words are those of `packing.py`, in another order. A tile of 16 rows is a row of the stored tensor,
[N / 16, 16 * words]. In it, each kind of words (a plane of codes, scales, minima) is a region:

    planes of codes    [chunk] [rows g, g + 8] [g] [lanes] [stretch]    a chunk: `span` stretches
    16-bit floats      the same, chunks of one stretch: four words a lane
    scales and others  [word] [rows g, g + 8] [g]

`lanes` have words of their own: four in planes of 4 and 8 bits, two of 2 bits, one of 1 bit.

A warp reads 512 neighbouring bytes by one instruction and shuffles nothing. Other kernels read word
by word, through `Placed`. Nothing here knows TVM.

The curves of `t4_g32` and `t5_g32` are odd functions but for a constant: value = M[i] - c for the
upper half of the codes, -M[i] - c for the lower. Their codes are stored as a sign, the top bit, and
i, so that a table of half the size serves both (`mirrored`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc_compiler.kernels import planes
from mlcc_compiler.quantization import Scheme

Array = npt.NDArray[Any]

EDGE = 16
"""Rows of a tile."""
STRETCH = 32
"""Columns that two instructions multiply."""
UNITS = 4
"""Units of a stretch, each of a lane of its own."""
_HALF = EDGE // 2
_SPAN = 4
"""Most stretches that a lane reads at a time: four words of 4-bit codes, 16 bytes."""
_BITS = (4, 5, 6, 8)


def fits(k: int, scheme: Scheme, parts: Sequence[range]) -> bool:
    """Whether a matrix of such rows, in such parts, can be stored in this order."""
    whole = k % STRETCH == 0 and all(len(rows) % EDGE == 0 for rows in parts)
    if scheme.bits == 16:
        return whole
    if scheme.bits not in _BITS:
        return False
    if scheme.is_e4m3:
        return whole and _groups_fit(scheme.group_of(k))
    if scheme.table and not mirrored(scheme) and (scheme.bits != 4 or not _bytes(scheme)):
        return False
    return whole and _groups_fit(scheme.group_of(k))


def _groups_fit(group: int) -> bool:
    """Whether stretches are whole groups, one or two, or the other way round."""
    return group % STRETCH == 0 or group == STRETCH // 2


def _bytes(scheme: Scheme) -> bool:
    """Whether a table's values are bytes."""
    return planes.integers(scheme.table) is not None


def mirrored(scheme: Scheme) -> bool:
    """Whether codes are stored as sign and magnitude."""
    return scheme.curve is not None and scheme.bits in _BITS


def span_of(k: int, bits: int) -> int:
    """Stretches that a lane reads at a time."""
    return 1 if bits == 16 else math.gcd(k // STRETCH, _SPAN)


def mirror(codes: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """Codes as sign and place in the table of magnitudes, or back: below the middle, the nearest
    to it first."""
    middle = 1 << (bits - 1)
    return np.where(codes < middle, codes ^ np.uint8(middle - 1), codes)


@dataclass(frozen=True)
class TileRow:
    """Row g or g + 8 of a tile, as expressions of a kernel."""

    tile: Any
    g: Any
    half: int


@dataclass(frozen=True)
class Region:
    """Words of a row that are stored together: from `first` on, `size` of them."""

    first: int
    size: int
    lanes: int = 1
    """Into how many parts the words of a stretch are dealt; lane t reads part t * lanes / 4."""
    per_unit: int = 1
    """Neighbouring words of a lane: those of a unit."""
    words: int = 1
    """That a lane reads of a row at a time: of a chunk."""

    @property
    def chunk(self) -> int:
        """Words of all rows of a tile's chunk."""
        return EDGE * self.lanes * self.words

    def place(self, g: Any, half: Any, word: Any) -> Any:
        """Where a word of a row is in its tile; ints, arrays or expressions."""
        at, dealt = word - self.first, self.lanes * self.per_unit
        chunk = at // (self.words * self.lanes) * self.chunk
        j = at // dealt * self.per_unit % self.words + at % self.per_unit
        lane = (half * _HALF + g) * self.lanes + at // self.per_unit % self.lanes
        return EDGE * self.first + chunk + lane * self.words + j

    def start(self, chunk: Any, g: Any, half: Any, t: Any) -> Any:
        """Where the words of lane 4 g + t in a chunk begin."""
        lane = (half * _HALF + g) * self.lanes + t * self.lanes // UNITS
        return EDGE * self.first + (chunk * (EDGE * self.lanes) + lane) * self.words


@dataclass(frozen=True)
class Order:
    """The places of all words of a tile: a tensor's regions, one after the other."""

    regions: tuple[Region, ...]

    @property
    def words(self) -> int:
        """Words of a row."""
        return sum(region.size for region in self.regions)

    def put(self, rows: Array) -> Array:
        """Rows of words [n, words] as tiles [n / 16, 16 * words]."""
        tiles = np.empty((len(rows) // EDGE, EDGE * self.words), rows.dtype)
        tiles[:, self._places().ravel()] = rows.reshape(tiles.shape)
        return tiles

    def take(self, tiles: Array) -> Array:
        """The inverse of `put`."""
        return np.ascontiguousarray(tiles[:, self._places().ravel()].reshape(-1, self.words))

    def _places(self) -> npt.NDArray[np.int64]:
        half, g = np.divmod(np.arange(EDGE)[:, None], _HALF)
        words = [np.arange(r.first, r.first + r.size)[None] for r in self.regions]
        parts = [r.place(g, half, w) for r, w in zip(self.regions, words, strict=True)]
        return np.concatenate(parts, axis=1)


def order_of_codes(k: int, bits: int) -> Order:
    """The order of the planes of codes, or of floats."""
    if bits == 16:
        return Order((Region(0, k // 2, UNITS, STRETCH // UNITS // 2, STRETCH // UNITS // 2),))
    span, regions, first = span_of(k, bits), [], 0
    for plane in planes.planes_of(bits):
        size = k * plane.bits // 32
        if plane.bits >= 4:
            per_unit = plane.bits // 4
            regions.append(Region(first, size, UNITS, per_unit, span * per_unit))
        else:
            regions.append(Region(first, size, plane.bits, words=span))
        first += size
    return Order(tuple(regions))


def order_of_parts(sizes: Sequence[int]) -> Order:
    """The order of scales and the like, by the words of each kind in a row."""
    firsts = np.cumsum([0, *sizes]).tolist()
    return Order(tuple(Region(f, size) for f, size in zip(firsts, sizes, strict=False)))


class Placed:
    """A region of a buffer of tiles, read as if it had rows."""

    def __init__(self, buffer: Any, order: Order, region: int = 0) -> None:
        self.buffer, self.order, self.of = buffer, order, order.regions[region]
        self.dtype, self.shape = buffer.dtype, (int(buffer.shape[0]) * EDGE, order.words)

    def region(self, number: int) -> Placed:
        """Another region of the buffer."""
        return Placed(self.buffer, self.order, number)

    def __getitem__(self, at: tuple[Any, Any]) -> Any:
        row, word = at
        if isinstance(row, TileRow):
            return self.buffer[row.tile, self.of.place(row.g, row.half, word)]
        half, g = row % EDGE // _HALF, row % _HALF
        return self.buffer[row // EDGE, self.of.place(g, half, word)]


def region(buffer: Any, number: int) -> Any:
    """A buffer's region by number, where it has some."""
    return buffer.region(number) if isinstance(buffer, Placed) else buffer
