"""What the warps of a tile of 128 rows do on sm_90: products by warp groups (`warp_group.py`).

W is unpacked as for `mma.m16n8k16`: the registers of a warp are the same, so are its sums. x comes
from workgroup memory without a load, so that a product takes no instruction but its own. While the
tensor cores multiply a stretch, the warps unpack the next one into other registers.

A lane's words of W are of the unit of x with its own number, while `wgmma` gives lane t the word t
of each unit. So words of x are copied one by one: word p of unit t to place t of unit p.
"""

from __future__ import annotations

from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, mma, warp_group
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_products import Products
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import Tile
from mlcc_compiler.kernels.gpu.linear.fragments.lane import LANES, WARPS
from mlcc_compiler.kernels.gpu.linear.fragments.order import STRETCH, UNITS
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import Rounded
from mlcc_compiler.kernels.gpu.linear.work_item import TileRows, WorkItems
from mlcc_compiler.kernels.gpu.workgroup import bind

_WORD = 4
_STEP = LANES
"""Words of a row of x in a step, one a lane."""
_SIDES = 2
"""Products of a stretch, 16 columns each."""
_SIDE_BYTES = warp_group.ROW_BYTES // (2 * _SIDES)


class WarpGroupActivations:
    """The copies of a thread into the tile of x: a word of each eighth row."""

    def __init__(
        self, work: WorkItems, x: Rounded, found: TileRows, tile: Tile, thread: Expr, k: int
    ) -> None:
        self.pairs = x.pairs
        row, lane = bind(thread // LANES), bind(thread % LANES)
        unit, word = bind(lane // UNITS), bind(lane % UNITS)
        turned = T.bitwise_xor(unit, row)
        at = row * warp_group.ROW_BYTES + (turned * UNITS + word) * _WORD
        self.to = bind(at.astype("uint32"))
        pair, stretch = unit % UNITS, unit // UNITS
        self.column = bind(stretch * (STRETCH // 2) + word * UNITS + pair)
        self.cell, self.rows = bind(work.first_word(found.x_row(row))), range(0, tile.rows, WARPS)
        cells = [work.first_word(found.x_row(bind(row + i))) for i in self.rows]
        self.behind = [mma.kept(bind(cell - self.cell)) for cell in cells]

    def copy(self, step: Expr, address: Expr) -> None:
        """Start the copies of a step."""
        to, at = bind(address + self.to), bind(self.cell + step * _STEP + self.column)
        for row, words in zip(self.rows, self.behind, strict=True):
            down = T.uint32(row * warp_group.ROW_BYTES)
            async_copy.copy_word(to + down, self.pairs[0, at], words)


class WarpGroupProducts(Products):
    """The sums of a warp."""

    def arrive(self) -> None:
        """Emit what is due between the end of a step's copies and the barrier."""
        warp_group.publish()

    def add(self, step: Expr, address: Expr, following: Expr) -> None:
        """Start the products of a step, and load the scales of the following one when its own are
        used. The last group may be under way until the next step's first is unpacked."""
        stretch = self._run(step) * self.tile.width
        held: dict[tuple[tuple[int, int], int], list[list[Expr]]] = {}
        for i in range(self.tile.width):
            self._load(address, i, held)
            warp_group.wait(1)  # for the group that took the registers which are written now
            weights = [
                self._weights(number, i, stretch + i, held) for number in range(self.tile.wide)
            ]
            if i == self.tile.width - 1:
                self.fetch(following)
            self._multiply(weights, bind(address + T.uint32(i * _SIDES * _SIDE_BYTES)))

    def _load(self, address: Expr, i: int, held: Any) -> None:
        """Load the words of stretch i, and those that are copied with them."""
        for place, region, first, count, at in self._words():
            if first != i:
                continue
            of_lane = (self.thread * (_WORD * count) + at).astype("uint32")
            words, size = async_copy.load(bind(address + of_lane), count), region.per_unit
            for j in range(self.together):
                of_stretch = words[j * size : (j + 1) * size]
                held.setdefault((place, first + j), []).append(of_stretch)

    def _multiply(self, weights: list[list[list[Expr]]], address: Expr) -> None:
        warp_group.begin()
        for side in range(_SIDES):
            at = bind(address + T.uint32(side * _SIDE_BYTES))
            for number, a in enumerate(weights):
                first = number * warp_group.SUMS
                sums = [self.sums[first + j] for j in range(warp_group.SUMS)]
                warp_group.multiply(sums, a[side], at)
        warp_group.commit()

    def finish(self) -> None:
        """Emit the wait for all products."""
        warp_group.wait(0)
