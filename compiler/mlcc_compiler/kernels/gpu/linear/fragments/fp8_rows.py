"""Activations as 8-bit floats (e4m3), for weights that are such floats: `--activations 8` on CUDA.

A row of x is rounded once, each group of it to its largest |x| / 448: a scale for the token, where
weights have one a row, or for each of the weights' groups (128 of DeepSeek's and Qwen's). A row is
words: its numbers, four a word, then the scales as float32, up to a multiple of four words. Of 128
columns, a block, the words are in the order in which lanes multiply them:

    [lanes] [stretch] [word of a unit]

so that a lane's eight words of a block, and of W, are neighbours (`order.py`). Where warp groups
multiply x, of more than 64 rows, it is [stretch] [word of a unit] [lanes], as `wgmma` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, PrimFunc, activations, kernel, store, u32
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.fragments import mma_fp8
from mlcc_compiler.kernels.gpu.linear.fragments.order import STRETCH, UNITS
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    bind,
    ceil_div,
    int32,
    largest,
    launch,
    real,
    reduce,
    when,
)
from mlcc_compiler.quantization.schemes import E4M3_MOST

STRETCHES = 4
"""Of a block."""
BLOCK = STRETCHES * STRETCH
"""Columns after which sums are added up in float32: tensor cores keep fewer bits of theirs."""
BLOCK_WORDS = BLOCK // 4
LANE_WORDS = BLOCK_WORDS // UNITS
"""Of a lane, in a block."""
MANY = 64
"""Rows of x from which on warp groups multiply."""
_ALIGN = 4
LEAST = 1e-30
"""Of a group's largest |x|: its inverse is a number."""


@dataclass(frozen=True)
class Fp8Row:
    """The form of a row of x."""

    k: int
    group: int
    by_groups: bool = False
    """Whether more than `MANY` rows are in the order of warp groups."""

    @property
    def groups(self) -> int:
        return self.k // self.group

    @property
    def grouped(self) -> bool:
        """Whether sums of a block are scaled, not those of all of K."""
        return self.groups > 1

    @property
    def first_scale(self) -> int:
        """Words before the scales."""
        return self.k // 4

    @property
    def words(self) -> int:
        return self.first_scale + -(-self.groups // _ALIGN) * _ALIGN

    def scale_of(self, block: Expr) -> Expr:
        """The word of a block's scale."""
        return block * BLOCK // self.group + self.first_scale


def row_of(gpu: Gpu, packing: GpuPacking, experts: bool = False) -> Fp8Row | None:
    """The form of x for a weight; None = x is not rounded to 8-bit floats. experts: whether it is
    several, whose tiles have few rows."""
    if not (gpu.fp8 and packing.fragments and packing.scheme.is_e4m3) or packing.k % BLOCK:
        return None
    group, by_groups = packing.k if packing.by_row else packing.group, gpu.warp_groups
    by_groups = by_groups and not experts
    return Fp8Row(packing.k, group, by_groups) if group % BLOCK == 0 else None


def round_to_fp8(gpu: Gpu, width: int, row: Fp8Row) -> PrimFunc:
    """(x[n, width]) -> u32[n, words], for each of the width / K parts of a row one `Fp8Row`."""
    units, count = row.group // UNIT, width // row.group
    size = min(gpu.threads, 1 << (units - 1).bit_length())
    teams, each = gpu.threads // size, -(-units // size)

    def body(x: Expr, y: Expr) -> None:
        grid = ceil_div(count, teams), x.shape[0]
        with launch(grid, (gpu.threads,)) as (block, m, thread):
            team, lane = bind(thread // size), bind(thread % size)
            group = bind(block * teams + team)
            held, most = Local(each * UNIT), Local()
            most[0] = real(LEAST)
            for i in range(each):
                unit = bind(lane + i * size)
                with when(tirx.all(group < count, unit < units)):
                    values = load(x, m, group * row.group + unit * UNIT, UNIT)
                    for j, value in enumerate(values):
                        held[i * UNIT + j] = value
                        most[0] = T.max(most[0], T.abs(value))
            top = bind(reduce(gpu, most[0], largest, lane, size, team, teams))
            inverse, first = bind(real(E4M3_MOST) / top), bind(group % row.groups)
            part = bind(group // row.groups * row.words)
            for i in range(each):
                unit = bind(lane + i * size)
                with when(tirx.all(group < count, unit < units)):
                    four = [held[i * UNIT + j] * inverse for j in range(UNIT)]
                    store_unit(y, row, four, m, part, bind(first * units + unit))
            with when(tirx.all(group < count, lane == 0)):
                store_scale(y, row, top, m, part + first)

    words = width // row.k * row.words
    return kernel(body, x=activations(gpu, "n", width), y=u32("n", words))


def store_unit(y: Any, row: Fp8Row, values: list[Expr], m: Expr, part: Expr, unit: Expr) -> None:
    """Emit the rounding of a unit of eight numbers: two words of a block."""
    words, of_block = Local(2, "uint32"), BLOCK // UNIT
    for j in range(2):
        words[j] = mma_fp8.rounded(values[4 * j : 4 * j + 4])
    stretch, lane = unit % of_block // UNITS, unit % UNITS
    block = part + unit // of_block * BLOCK_WORDS
    at, apart = bind(block + lane * LANE_WORDS + stretch * 2), 1
    if row.by_groups:
        many = y.shape[0] > MANY
        at = bind(T.Select(many, block + stretch * LANE_WORDS + lane, at))
        apart = bind(T.Select(many, int32(UNITS), int32(1)))
    for j in range(2):
        store(y, words[j], m, at + j * apart)


def store_scale(y: Any, row: Fp8Row, top: Expr, m: Expr, at: Expr) -> None:
    """Emit the store of a group's scale; top: its largest |x|."""
    scale = T.reinterpret("uint32", top * real(1 / E4M3_MOST))
    store(y, scale, m, at + row.first_scale)
