"""y = x @ W.T for more than 8 rows of x by tensor cores, from weights stored for them.

A workgroup of eight warps makes a tile of y (`gemm_tile.py`). x, rounded to float16 before
(`rounded.py`), and the words of W come into workgroup memory by asynchronous copies, a ring of
three or four steps: while one is multiplied, the others are on their way. Only x needs a barrier,
one a step. What warps do is in `gemm_products.py`; of 128 rows on sm_90 in
`warp_group_products.py`.

Up to 64 rows are bound by reading W, so that warps share out K, and workgroups do where W has few
rows (`split_k.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, mma
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_products import (
    Fp8Activations,
    Fp8Products,
)
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_warp_group_products import (
    Fp8WarpGroupActivations,
    Fp8WarpGroupProducts,
)
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_products import THREADS, Activations, Products
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import Tile, tile_for
from mlcc_compiler.kernels.gpu.linear.fragments.lane import LANES, WARPS
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import Rounded
from mlcc_compiler.kernels.gpu.linear.fragments.split_k import After, SplitK
from mlcc_compiler.kernels.gpu.linear.fragments.warp_group_products import (
    WarpGroupActivations,
    WarpGroupProducts,
)
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import WorkItems
from mlcc_compiler.kernels.gpu.workgroup import Local, barrier, bind, ceil_div, int32, launch, when

_KINDS: dict[tuple[bool, bool], tuple[Any, Any]] = {
    (False, False): (Activations, Products),
    (False, True): (WarpGroupActivations, WarpGroupProducts),
    (True, False): (Fp8Activations, Fp8Products),
    (True, True): (Fp8WarpGroupActivations, Fp8WarpGroupProducts),
}
"""What copies x and what multiplies it: whether both sides are 8-bit floats, and by warp groups."""


def fragment_gemm(
    gpu: Gpu,
    reader: WeightReader,
    work: WorkItems,
    rows: int,
    x: Rounded,
    single: bool = False,
    share: bool = False,
) -> None:
    """Emit the launch: tiles of `rows` rows of x. single: there are no more rows. share: whether
    workgroups may share out K, for which neighbouring rows must make tiles."""
    tile = tile_for(gpu, rows, reader.packing)
    split = split_of(reader, work, tile, single=single, share=share)
    with (
        launch(split.grid, (LANES, WARPS)) as (block, y, lane, warp),
        mma.workgroups(tile.workgroups),
    ):
        tile_products(reader, work, split, x, (block, y, lane, warp), ring_for([tile]))


def ring_for(tiles: Sequence[Tile]) -> Expr:
    """The address of workgroup memory that is enough for each of the tiles."""
    return async_copy.memory(max(tile.bytes for tile in tiles), max(tile.align for tile in tiles))


def split_of(
    reader: WeightReader, work: WorkItems, tile: Tile, *, single: bool, share: bool
) -> SplitK:
    """How workgroups divide the tiles, and K."""
    steps, columns = ceil_div(reader.packing.k, tile.depth), ceil_div(work.n_out, tile.columns)
    return SplitK(tile, steps, columns, 1 if single else work.blocks(tile.rows), share)


def tile_products(
    reader: WeightReader,
    work: WorkItems,
    split: SplitK,
    x: Rounded,
    at: tuple[Expr, ...],
    ring: Expr,
    after: After | None = None,
) -> None:
    """Emit the work of workgroup (at[0], at[1]), for lane at[2] of warp at[3]. ring: the address of
    `ring_for` its tile. after: see `PartOfTile.write`."""
    block, y, lane, warp = at
    tile = split.tile
    activations, products_of = _KINDS[tile.fp8 is not None, tile.warp_groups]
    thread = bind(warp * LANES + lane)
    part = split.place(block, y)
    found = work.tile(part.row, tile.rows, thread, THREADS)
    begin, end = part.steps()
    halves = activations(work, x, found, tile, thread, reader.packing.k)
    products = products_of(reader, work, found, tile, (block, warp, lane))

    filled, used = _Stage(ring, tile), _Stage(ring, tile)

    def start(step: Expr) -> None:
        with when(step < end):
            halves.copy(step, filled.address)
            products.copy(step, filled.address)
        async_copy.commit()
        filled.advance()

    for i in range(tile.ahead):
        start(bind(begin + i))
    products.fetch(begin)
    with T.serial(bind(end - begin)) as i:
        step = bind(begin + int32(i))
        async_copy.wait(tile.ahead - 1)
        products.arrive()
        barrier()
        start(bind(step + tile.ahead))
        products.add(step, used.address, bind(tirx.min(step + 1, end - 1)))
        used.advance()
    products.finish()
    async_copy.wait(0)
    barrier()
    part.write(lambda write: products.write(write, ring), found, x, thread, after)


class _Stage:
    """A step's place in the ring."""

    def __init__(self, ring: Expr, tile: Tile) -> None:
        self.ring, self.tile, self.at = ring, tile, Local(1, "uint32")
        self.at[0] = ring

    @property
    def address(self) -> Expr:
        return self.at[0]

    def advance(self) -> None:
        """To the next step's."""
        following, size = bind(self.at[0] + T.uint32(self.tile.stage_bytes)), self.tile.stages
        end = self.ring + T.uint32(size * self.tile.stage_bytes)
        self.at[0] = T.Select(following == end, self.ring, following)
