"""What the warps of a tile of 128 rows do on sm_90 where W and x are 8-bit floats: `wgmma` of 32
columns by 64 rows of x. A step is a block; the sums of a tile of W by half of x begin at 0 and are
added to those of all of K in float32 once its four products are done, while the tensor cores
multiply the next.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.linear.fragments import warp_group
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_products import (
    ROW_BYTES,
    Fp8Activations,
    Fp8Products,
)
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import STRETCHES
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import Tile
from mlcc_compiler.kernels.gpu.linear.fragments.lane import SUMS
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows, WorkItems
from mlcc_compiler.kernels.gpu.workgroup import Local, bind

_WORD = 4
_SIDE_BYTES = ROW_BYTES // STRETCHES
"""Of a row of x in a product."""


class Fp8WarpGroupActivations(Fp8Activations):
    """The copies of a thread into the tile of x, swizzled as `wgmma` reads it."""

    period = warp_group.ATOM // ROW_BYTES


class Fp8WarpGroupProducts(Fp8Products):
    """The sums of a warp, and those of a block."""

    def __init__(
        self,
        reader: WeightReader,
        work: WorkItems,
        found: TileRows,
        tile: Tile,
        at: tuple[Expr, ...],
    ) -> None:
        super().__init__(reader, work, found, tile, at)
        self.raw = Local(warp_group.SUMS)

    def arrive(self) -> None:
        """Emit what is due between the end of a step's copies and the barrier."""
        warp_group.publish()

    def add(self, step: Expr, address: Expr, following: Expr) -> None:
        """Add the products of a step: of each tile of W by each half of x, two under way."""
        weights, scales = self.rows(address), [self.scales_of_w(i) for i in range(self.tile.wide)]
        count, parts = warp_group.FP8_SUMS, 2 * self.tile.wide
        raw = [[self.raw[i * count + j] for j in range(count)] for i in range(2)]
        for part in range(parts + 1):
            if part < parts:
                self._begin(weights[part // 2], raw[part % 2], address, part % 2)
            if part == parts - 1:
                self.fetch(following)
            if part:
                done = part - 1
                warp_group.wait_for(raw[done % 2], int(part < parts))
                for i in range(0, count, SUMS):
                    h = (done * count + i) // SUMS
                    self.promote(h, raw[done % 2][i : i + SUMS], scales[done // 2], address)

    def _begin(
        self, rows: list[list[list[Expr]]], raw: list[Expr], address: Expr, half: int
    ) -> None:
        """Start the products of a tile of W by half of x."""
        upper, lower = rows
        warp_group.begin()
        for i in range(STRETCHES):
            a = [upper[i][0], lower[i][0], upper[i][1], lower[i][1]]
            down = half * warp_group.FP8_ROWS * ROW_BYTES + i * _SIDE_BYTES
            warp_group.multiply_fp8(raw, a, bind(address + T.uint32(down)), first=i == 0)
        warp_group.commit()
