"""Attention of several query tokens by `mma.m16n8k16`, over pages: FlashAttention (Dao, 2023).

The tiles are those of `matrix_prefill.py`, whose loads are used. A warp has 16 query rows, all keys
of a block and all of head_dim. Where a lane's sums lie is known here: so scores become weights in
registers, which are the left side of the product with values, and sums are scaled when a larger
score appears. Keys are read once.

A lane reads eight neighbours of a key, columns of two products, as `linear/fragments/order.py`
orders them. Values are transposed on their way to registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import T
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.attention.matrix_prefill import MatrixPlan, MatrixTile
from mlcc_compiler.kernels.gpu.attention.query_tile import QueryTile
from mlcc_compiler.kernels.gpu.attention.rows import Rows
from mlcc_compiler.kernels.gpu.attention.sequences import (
    LOWEST,
    VECTOR,
    PagedSequences,
    apply_softcap,
    heads_together,
    sink_weight,
    split,
)
from mlcc_compiler.kernels.gpu.attention.tiles import each_tile
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, mma
from mlcc_compiler.kernels.gpu.linear.matrix_unit import UNITS
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    int32,
    real,
    shared,
    when,
    zeros,
)

_ROWS = _KEYS = 64
_WARPS, _LANES = 4, 32
_STRETCH, _UNIT, _SUMS = 32, 8, 4
_TILES = _KEYS // _UNIT
"""Of scores, 8 keys each."""
_ALL_LANES = 0xFFFFFFFF
_LOG2_E = 1.4426950408889634


def plan_of(gpu: Gpu, shape: AttentionShape) -> MatrixPlan | None:
    """The tile; None if it does not fit, or the device has no such instructions."""
    if not (gpu.fragments and gpu.f16 and gpu.matrix_unit) or shape.head_dim % VECTOR:
        return None
    dim = ceil_div(shape.head_dim, _STRETCH) * _STRETCH
    bytes_ = 2 * _ROWS * (_key_stride(dim) + _value_stride(dim)) + 4 * _KEYS
    if bytes_ > gpu.shared_bytes:
        return None
    heads = heads_together(shape, _ROWS)[0]
    return MatrixPlan(_WARPS * _LANES, heads, _ROWS, _KEYS, dim, _WARPS, 1, 16)


def _key_stride(dim: int) -> int:
    """float16 cells of a row, so that two rows of 64 bytes are all banks."""
    words = dim // 2
    return 2 * (words + (16 - words) % 32)


def _value_stride(dim: int) -> int:
    """Likewise for eight rows of 16 bytes."""
    words = dim // 2
    return 2 * (words + (4 - words) % 32)


def mma_prefill(
    gpu: Gpu,
    plan: MatrixPlan,
    sequences: PagedSequences,
    most: Expr,
    q: Expr,
    pages: Sequence[Expr],
    out: Expr,
    sinks: Expr | None = None,
) -> None:
    """Emit the launch: see `matrix_prefill`."""
    shape = sequences.shape
    splits = shape.group // plan.heads

    def run(sequence: Any, start: Expr, count: Expr, part: Expr, thread: Expr) -> None:
        head = bind(part * plan.heads)
        queries = QueryTile(sequences, sequence, start, count, plan.heads)
        tile = _Tile(gpu, plan, queries, thread)
        tile.go(q, Rows(gpu, sequences.layout, *pages), part // splits, head)
        tile.write(out, head, sinks)

    each_tile(sequences, plan, shape.kv_heads * splits, most, out, run)


class _Tile(MatrixTile):
    """Emits the work of one workgroup."""

    def __init__(self, gpu: Gpu, plan: MatrixPlan, queries: QueryTile, thread: Expr) -> None:
        self.plan, self.tile, self.shape, self.thread = plan, queries, queries.shape, thread
        self.unit = UNITS[gpu.matrix_unit]
        self.lane = bind(thread % _LANES)
        self.g, self.t = bind(self.lane // 4), bind(self.lane % 4)
        self.row = bind(thread // _LANES * 16 + self.g)
        self.values = self.queries = shared((_ROWS, _value_stride(plan.dim)), "float16")
        """Queries, until they are in registers."""
        self.block = shared((_KEYS, _key_stride(plan.dim)), "float16")
        self.places = shared((_KEYS,), "int32")
        self.asked = Local(plan.dim // 4, "uint32")
        self.best, self.total = zeros(2, LOWEST), zeros(2)
        self.count = plan.dim // _UNIT * _SUMS
        self.sums = zeros(self.count)

    def go(self, q: Expr, rows: Rows, kv_head: Expr, head: Expr) -> None:
        """Go through the blocks of keys."""
        plan = self.plan
        self._load_queries(q, head)
        barrier()
        asked = _Memory(self.queries)
        for s in range(plan.dim // _STRETCH):
            halves = [self._words(asked, self.row + 8 * i, s) for i in range(2)]
            for i in range(8):
                self.asked[s * 8 + i] = halves[i % 2][i // 2]
        barrier()
        bounds = [self.tile.bounds(bind(self.row + 8 * i)) for i in range(2)]
        first = self.tile.first_key()
        with T.serial(ceil_div(self.tile.end - first, plan.keys)) as number:
            begin = bind(first + int32(number) * plan.keys)
            self.tile.locate(self.places, begin, kv_head, plan.threads, self.thread)
            barrier()
            self._load_block(rows, 0)
            self._load_block(rows, rows.to_value, self.values)
            barrier()
            self._add_values(self._weights(self._scores(), bounds, begin))
            barrier()

    def _words(self, memory: _Memory, row: Expr, stretch: int) -> list[Expr]:
        """Eight neighbours of a row, four words."""
        return async_copy.load(memory.at(row, self.t * _UNIT + stretch * _STRETCH), 4)

    def _scores(self) -> Local:
        scores, block = zeros(_TILES * _SUMS), _Memory(self.block)
        for s in range(self.plan.dim // _STRETCH):
            for j in range(_TILES):
                keys = self._words(block, self.g + j * _UNIT, s)
                cells = [scores[j * _SUMS + i] for i in range(_SUMS)]
                for side in range(2):
                    a = [self.asked[s * 8 + side * 4 + i] for i in range(4)]
                    mma.multiply(cells, cells, a, keys[2 * side : 2 * side + 2])
        return scores

    def _weights(self, scores: Local, bounds: list[Any], begin: Expr) -> list[list[Expr]]:
        """Scores as pairs of weights, by tile of eight keys: of row g and of g + 8. Scales what was
        summed before."""
        tops = zeros(2, LOWEST)
        for i in range(_TILES * _SUMS):
            half, key = i % _SUMS // 2, begin + self.t * 2 + (i // _SUMS * _UNIT + i % 2)
            score = apply_softcap(self.shape, scores[i])
            seen = self.tile.sees(bounds[half], self.tile.key(bind(key)))
            scores[i] = T.if_then_else(seen, score, real(LOWEST))
            tops[half] = T.max(tops[half], scores[i])
        for half in range(2):
            top = bind(T.max(self.best[half], self._over_lanes(tops[half], T.max)))
            factor = bind(_weight(self.best[half], top))
            self.best[half] = top
            self.total[half] = self.total[half] * factor
            for i in range(half * 2, self.count, _SUMS):
                self.sums[i] = self.sums[i] * factor
                self.sums[i + 1] = self.sums[i + 1] * factor
        pairs = Local(_TILES * 2, "uint32")
        for i in range(_TILES * 2):
            half = i % 2
            two = [bind(_weight(scores[2 * i + x], self.best[half])) for x in range(2)]
            self.total[half] = self.total[half] + (two[0] + two[1])
            pairs[i] = mma.halves(*two)
        return [[pairs[2 * j], pairs[2 * j + 1]] for j in range(_TILES)]

    def _over_lanes(self, value: Expr, combine: Any) -> Expr:
        """Combined over the four lanes of a row."""
        cell = Local(1)
        cell[0] = value
        for bit in (1, 2):
            lane = T.bitwise_xor(self.lane, bit)
            other = T.tvm_warp_shuffle(T.uint32(_ALL_LANES), cell[0], lane, _LANES, _LANES)
            cell[0] = combine(cell[0], bind(other))
        return cell[0]

    def _add_values(self, weights: list[list[Expr]]) -> None:
        values = _Memory(self.values)
        for k in range(_KEYS // 16):
            a = [*weights[2 * k], *weights[2 * k + 1]]
            for d in range(self.plan.dim // 16):
                row, column = self.lane % 16 + k * 16, self.lane // 16 * _UNIT + d * 16
                b = async_copy.transposed(values.at(row, column))
                for j in range(2):
                    at = (2 * d + j) * _SUMS
                    cells = [self.sums[at + i] for i in range(_SUMS)]
                    mma.multiply(cells, cells, a, b[2 * j : 2 * j + 2])

    def write(self, out: Expr, head: Expr, sinks: Expr | None) -> None:
        """out = sums / the sum of the weights."""
        for half in range(2):
            row = bind(self.row + 8 * half)
            total = Local()
            total[0] = self._over_lanes(self.total[half], lambda a, b: a + b)
            with when(row < self.tile.count * self.plan.heads):
                token, h = split(row, self.plan.heads)
                if sinks is not None:
                    more = sink_weight(bind(sinks[head + h]), self.best[half])
                    total[0] = total[0] + more
                factor = bind(real(1) / total[0])
                for i in range(half * 2, self.count, _SUMS):
                    for x in range(2):
                        d = bind(self.t * 2 + (i // _SUMS * _UNIT + x))
                        with when(d < self.shape.head_dim):
                            value = self.sums[i + x] * factor
                            store(out, value, self.tile.token + token, head + h, d)


def _weight(score: Expr, top: Expr) -> Expr:
    """e ** (score - top); 1 where both are the lowest."""
    return mma.power((score - top) * real(_LOG2_E))


class _Memory:
    """Addresses of cells of a float16 buffer in workgroup memory."""

    def __init__(self, buffer: Any) -> None:
        self.first, self.stride = bind(async_copy.address(buffer[0, 0])), int(buffer.shape[1])

    def at(self, row: Expr, column: Expr) -> Expr:
        """Of a cell."""
        return bind(self.first + ((row * self.stride + column) * 2).astype("uint32"))
