"""What the warps of a tile of 128 rows do on sm_90 where W and x are 8-bit floats: `wgmma` of 32
columns by 64 rows of x. A step is a block; the sums of each half of x begin at 0 and are added to
those of all of K in float32 once its four products are done. Those of the first half are added
while the tensor cores multiply the second.

`wgmma` gives lane t the words t and t + 4 of 32 columns, so that words of x are copied one by one,
as in `warp_group_products.py`.
"""

from __future__ import annotations

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, mma, warp_group
from mlcc_compiler.kernels.gpu.linear.fragments.eight_products import (
    ROW_BYTES,
    EightActivations,
    EightProducts,
)
from mlcc_compiler.kernels.gpu.linear.fragments.eights import BLOCK_WORDS, LANE_WORDS, STRETCHES
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import Tile
from mlcc_compiler.kernels.gpu.linear.fragments.lane import LANES, SUMS, WARPS
from mlcc_compiler.kernels.gpu.linear.fragments.order import UNITS
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import Rounded
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import LinearWork, TileRows, WorkItems
from mlcc_compiler.kernels.gpu.workgroup import Local, bind

_WORD = 4
_SIDE_BYTES = ROW_BYTES // STRETCHES
"""Of a row of x in a product."""


class EightGroupActivations(EightActivations):
    """The copies of a thread into the tile of x: a word of each eighth row, and a scale."""

    def __init__(
        self, work: WorkItems, x: Rounded, found: TileRows, tile: Tile, thread: Expr, k: int
    ) -> None:
        assert tile.eights is not None and isinstance(work, LinearWork)
        self.pairs, self.tile, self.row, self.thread = x.pairs, tile, tile.eights, thread
        row, lane = bind(thread // LANES), bind(thread % LANES)
        t, word = bind(lane // LANE_WORDS), bind(lane % LANE_WORDS)
        turned = T.bitwise_xor(word, row)
        at = row * ROW_BYTES + (turned * UNITS + t) * _WORD
        self.to = bind(at.astype("uint32"))
        first = found.x_row(row)
        self.cell, self.below = bind(work.first_word(first) + lane), range(0, tile.rows, WARPS)
        behind = [bind(found.x_row(row + i) - first) for i in self.below]
        self.behind = [mma.kept(work.first_word(rows)) for rows in behind]
        self.scale = bind(work.first_word(found.x_row(self._row(thread))))

    def copy(self, step: Expr, address: Expr) -> None:
        """Start the copies of a step."""
        to, at = bind(address + self.to), bind(self.cell + step * BLOCK_WORDS)
        for row, words in zip(self.below, self.behind, strict=True):
            async_copy.copy_word(to + T.uint32(row * ROW_BYTES), self.pairs[0, at], words)
        self.copy_scale(step, address)


class EightGroupProducts(EightProducts):
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
        """Add the products of a step."""
        upper, lower = self.rows(address)
        scales = self.scales_of_w()
        count = warp_group.EIGHT_SUMS
        halves = [[self.raw[i * count + j] for j in range(count)] for i in range(2)]
        for number, raw in enumerate(halves):
            warp_group.begin()
            for i in range(STRETCHES):
                a = [upper[i][0], lower[i][0], upper[i][1], lower[i][1]]
                down = number * warp_group.EIGHT_ROWS * ROW_BYTES
                at = bind(address + T.uint32(i * _SIDE_BYTES + down))
                warp_group.multiply_eights(raw, a, at, first=i == 0)
            warp_group.commit()
        self.fetch(following)
        for number, raw in enumerate(halves):
            warp_group.wait_for(raw, 1 - number)
            for i in range(0, count, SUMS):
                h = (number * count + i) // SUMS
                self.promote(h, raw[i : i + SUMS], scales, address)
