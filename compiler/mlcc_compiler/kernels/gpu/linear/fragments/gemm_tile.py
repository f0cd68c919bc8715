"""How a workgroup divides a tile of y, and its memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, warp_group
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import STRETCHES, Fp8Row, row_of
from mlcc_compiler.kernels.gpu.linear.fragments.lane import LANES, WARPS
from mlcc_compiler.kernels.gpu.linear.fragments.order import EDGE, STRETCH
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking

COLUMNS = 8
"""Rows of x of an instruction."""
GAP = 4
"""Words between rows of sums in workgroup memory: against bank conflicts."""
_MOST_STAGES = 4


@dataclass(frozen=True)
class Tile:
    """How the warps of a workgroup divide a tile of y, and K."""

    over_rows: int
    """Warps side by side over the rows of x."""
    over_columns: int
    """Over the rows of W."""
    over_depth: int
    """Over K."""
    high: int
    """Instructions of a warp over the rows of x, 8 each."""
    wide: int
    """Over the rows of W, 16 each."""
    width: int
    """Stretches of a warp in a step."""
    code_bits: int = 4
    warp_groups: bool = False
    """Whether warps multiply in groups (`warp_group_products.py`)."""
    fp8: Fp8Row | None = None
    """The form of x, if it is 8-bit floats (`fp8_rows.py`); None = float16."""

    @property
    def rows(self) -> int:
        return self.over_rows * self.high * COLUMNS

    @property
    def columns(self) -> int:
        return self.over_columns * self.wide * EDGE

    @property
    def depth(self) -> int:
        """Columns of x in a step."""
        return self.over_depth * self.width * STRETCH

    @property
    def row_bytes(self) -> int:
        """Of a row of x in a step."""
        return self.depth if self.fp8 else 2 * self.depth

    @property
    def x_bytes(self) -> int:
        """Of a step: x, and the scales of its rows."""
        scales = 4 * self.rows if self.fp8 and self.fp8.grouped else 0
        return self.rows * self.row_bytes + -(-scales // self.align) * self.align

    @property
    def stage_bytes(self) -> int:
        """Of a step: x, and what each lane reads of two rows of each of its tiles of W."""
        bits = [16] if self.code_bits == 16 else [p.bits for p in planes.planes_of(self.code_bits)]
        lane = self.width * sum(max(1, of_plane // 4) for of_plane in bits)
        return self.x_bytes + 4 * LANES * WARPS * 2 * self.wide * lane

    @property
    def stages(self) -> int:
        """Steps in workgroup memory."""
        most = warp_group.MOST_BYTES if self.warp_groups else async_copy.MOST_BYTES
        return min(_MOST_STAGES, most // self.stage_bytes)

    @property
    def ahead(self) -> int:
        """Steps whose copies are on their way while one is multiplied: all others, but for the last
        one where its products may still be under way."""
        return self.stages - (2 if self.warp_groups and not self.fp8 else 1)

    @property
    def align(self) -> int:
        """What divides the address of the first step."""
        return warp_group.ATOM if self.warp_groups else 4

    @property
    def sums_stride(self) -> int:
        """Words of a row of sums in workgroup memory."""
        return self.columns + GAP

    @property
    def bytes(self) -> int:
        """Workgroup memory: of the steps, afterwards of sums."""
        sums = 4 * self.over_depth * self.rows * self.sums_stride if self.over_depth > 1 else 0
        return max(self.stages * self.stage_bytes, sums)

    @property
    def workgroups(self) -> int:
        """On a multiprocessor: registers allow one of 64 rows and more."""
        return 1 if self.rows >= 64 else 2


def tile_for(gpu: Gpu, rows: int, packing: GpuPacking) -> Tile:
    """The tile for that many rows of x, 16 to 128."""
    if fp8 := row_of(gpu, packing):
        high, groups = rows // COLUMNS, gpu.warp_groups and rows == warp_group.ROWS
        wide = 2 if groups else 1
        return Tile(1, WARPS, 1, high, wide, STRETCHES, packing.scheme.bits, groups, fp8)
    bits, width = packing.scheme.bits, math.gcd(packing.k // STRETCH, 2)
    narrow = 1 if bits == 16 else width  # else two steps would fill the memory
    tiles = {
        16: Tile(1, 4, 2, 2, 2, narrow),
        32: Tile(1, 4, 2, 4, 2, narrow),
        64: Tile(1, 4, 2, 8, 2, narrow),
        128: Tile(1, 8, 1, 16, 2, width),
    }
    if gpu.warp_groups and width == 2:
        tiles |= {warp_group.ROWS: Tile(1, 8, 1, 16, 2, width, warp_groups=True)}
    tile = tiles[rows]
    if tile.depth < 2 * STRETCH:  # rows of x have two halves of 128 bytes
        tile = replace(tile, over_columns=4, over_depth=2, wide=1)
    return replace(tile, code_bits=bits)
