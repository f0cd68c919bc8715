"""y = x @ W.T for few rows of x: a stream over W at the speed of memory.

A team of lanes takes a few neighbouring rows of W and walks along K, a lane a few units of eight
weights at a time, neighbours to neighbours; each weight is read once from memory and multiplied
with up to 8 rows of x, which come from the cache (8 x 8192 f32 are 256 KiB, shared by all
workgroups). Sums are float32 registers, added up over the lanes at the end.

Shapes: 128 threads, teams of 32 lanes, 4 rows a team. A small W has fewer rows a team, until there
are 256 workgroups (an H200 has 132 multiprocessors), and more lanes, until there are four times as
many or a lane has four units left: N = K = 2048 is 512 workgroups of 4 rows, N = 2048, K = 8192
is 1024 of 2, N = 8192, K = 2048 is 1024 of 8.

Where steps have several units (`steps.py`; WebGPU and Vulkan), a thread has up to 8 rows of W for
one row of x, and 64 workgroups will do: x is then read once for as many weights as can be. What a
thread waits for at a time grows as the number of threads shrinks, so memory is kept as busy; the
lanes of a row are as many as before. N = K = 2048 is 128 workgroups of 16 rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr, store
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear import packed_dot
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT, load
from mlcc_compiler.kernels.gpu.linear.load_units import LoadedRow, each_unit, step_units
from mlcc_compiler.kernels.gpu.linear.weight_reader import Block, WeightReader
from mlcc_compiler.kernels.gpu.linear.work_item import WorkItems
from mlcc_compiler.kernels.gpu.vec4 import vec4_if_useful
from mlcc_compiler.kernels.gpu.workgroup import (
    Local,
    barrier,
    bind,
    ceil_div,
    int32,
    launch,
    real,
    shared,
    when,
)

THREADS = 128
_WORKGROUPS, _FEWER_WORKGROUPS = 256, 64
_LEAST_UNITS = 4
_CELLS, _FOUR = 2048, 4
"""Floats of workgroup memory for the sums of lanes, 8 KiB; number read and written at a time."""
_UNROLLED_BITS = 3
"""Codes of up to this size are read without loops: the fewer bytes a weight has, the fewer
operations memory latency hides. It is up to four times the text, which drivers compile.
"""


@dataclass(frozen=True)
class Shape:
    """How the rows of W and the steps along K are divided."""

    threads: int
    lanes: int
    rows: int
    units: int
    """Units read at a time by a lane."""

    @property
    def teams(self) -> int:
        return self.threads // self.lanes


def shape_for(gpu: Gpu, reader: WeightReader, n_out: int, columns: int) -> Shape:
    """`columns`: rows of x that are multiplied at once."""
    # without f16 widening a scale takes ten instructions: once for four units
    units = 1 if gpu.narrow_types else step_units(reader)
    threads, lanes = min(THREADS, gpu.threads), 32
    rows, workgroups = 4 if columns <= 8 else 2, _WORKGROUPS
    if units > 1:
        rows, workgroups = 8 if columns == 1 else rows, _FEWER_WORKGROUPS
    while rows > 1 and n_out * lanes < workgroups * threads * rows:
        rows //= 2
    while (
        lanes < threads
        and n_out * lanes < 4 * _WORKGROUPS * threads * rows
        and reader.units >= 2 * lanes * _LEAST_UNITS
    ):
        lanes *= 2
    return Shape(threads, lanes, rows, units)


def gemv(gpu: Gpu, reader: WeightReader, work: WorkItems, columns: int) -> None:
    """Emit the launch: tiles of `columns` rows of x (up to 8), each a stream over its rows of W."""
    shape = shape_for(gpu, reader, work.n_out, columns)
    blocks = ceil_div(work.n_out, shape.rows * shape.teams)
    source = vec4_if_useful(gpu, work.x, UNIT)
    with launch((blocks, work.blocks(columns)), (shape.threads,)) as (block, y, thread):
        lane, team = bind(thread % shape.lanes), bind(thread // shape.lanes)
        first = bind((block * shape.teams + team) * shape.rows)
        tile = work.tile(y, columns, thread, shape.threads)
        rows = [tile.w_row(first + r) for r in range(shape.rows)]
        xs = [tile.x_row(int32(m)) for m in range(columns)]
        sums = Local(columns * shape.rows)
        for i in range(columns * shape.rows):
            sums[i] = real(0)
        if packed_dot.takes(gpu, reader, columns, shape.units):
            products = packed_dot.PackedProducts(reader, source, xs)
            products.fill_table(thread, shape.threads)
            _stream(reader, shape, lane, lambda unit: products.step(rows, unit, sums))
            products.finish()
        else:
            _stream(
                reader, shape, lane, lambda unit: _step(reader, shape, source, xs, rows, unit, sums)
            )

        def write(index: Expr, team: Expr, value: Expr) -> None:
            n = bind((block * shape.teams + team) * shape.rows + tirx.floormod(index, shape.rows))
            tile.write(bind(tirx.floordiv(index, shape.rows)), n, value)

        _add_lanes(gpu, shape, sums, columns * shape.rows, thread, write)


def _stream(reader: WeightReader, shape: Shape, lane: Expr, body: Callable[[Expr], None]) -> None:
    """Emit body(first unit) for each of this lane's steps along K."""
    steps = reader.units // shape.units
    with T.serial(ceil_div(steps, shape.lanes)) as i:
        step = bind(int32(i) * shape.lanes + lane)
        if steps % shape.lanes:
            with when(step < steps):
                body(bind(step * shape.units))
        else:
            body(bind(step * shape.units))


def _step(
    reader: WeightReader,
    shape: Shape,
    x: Any,
    xs: list[Any],
    rows: list[Expr],
    first: Expr,
    sums: Local,
) -> None:
    """Add the products of `shape.units` units, one after the other."""
    if shape.units == 1:
        fetched = [reader.fetch(row, first) for row in rows]
        _unit(x, xs, fetched, first, sums)
        return

    def unit(at: Expr, held: list[LoadedRow]) -> None:
        _unit(x, xs, [partial(_alone, row, at) for row in held], at, sums)

    unroll = len(xs) == 1 and reader.packing.scheme.bits <= _UNROLLED_BITS
    each_unit(reader, rows, first, unroll, unit)


def _alone(row: LoadedRow, unit: Expr) -> list[Block]:
    return [row.block(unit)]


def _unit(
    x: Any,
    xs: list[Any],
    rows: Sequence[Callable[[], list[Block]]],
    unit: Expr,
    sums: Local,
) -> None:
    """Add the products of a unit, whose weights each of `rows` emits. Codes are multiplied
    unscaled, and their sum is scaled. The smaller side, rows of x or of W, is held in registers."""
    totals: list[dict[int, Expr]] = [{} for _ in xs]
    if len(xs) > len(rows):
        blocks = [row() for row in rows]
        for m, at in enumerate(xs):
            values = load(x, at, unit * UNIT, UNIT)
            for r, row in enumerate(blocks):
                _add(values, totals[m], row, sums, m * len(rows) + r)
        return
    every = [load(x, at, unit * UNIT, UNIT) for at in xs]
    for r, emit in enumerate(rows):
        row = emit()
        for m, values in enumerate(every):
            _add(values, totals[m], row, sums, m * len(rows) + r)


def _add(
    values: list[Expr], totals: dict[int, Expr], row: Sequence[Block], sums: Local, to: int
) -> None:
    """sums[to] += values @ the weights of a row's blocks. `totals` caches the sums of a block's
    values, by its start, from row to row."""
    begin = 0
    for block in row:
        some = values[begin : begin + len(block.raw)]
        products = [v * raw for v, raw in zip(some, block.raw, strict=True)]
        if block.scaling is None:
            sums[to] = _sum([sums[to], *products])
        else:
            sums[to] = sums[to] + bind(_sum(products)) * block.scaling.scale
            if block.scaling.offset is not None:
                if begin not in totals:
                    totals[begin] = bind(_sum(some))
                sums[to] = sums[to] + totals[begin] * block.scaling.offset
        begin += len(block.raw)


def _sum(terms: Sequence[Expr]) -> Expr:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _add_lanes(
    gpu: Gpu,
    shape: Shape,
    sums: Local,
    count: int,
    thread: Expr,
    write: Callable[[Expr, Expr, Expr], None],
) -> None:
    """Emit write(index, team, total) for every sum of every team, in a fixed order of addition.

    Through registers within a subgroup, where available; the rest through shared memory, four sums
    at a time, whose totals are added up by a thread of their own.
    """
    width = min(gpu.subgroup, shape.lanes) if gpu.subgroup else 1
    parts = shape.threads // width
    chunk = min(count, _CELLS // parts // _FOUR * _FOUR)
    cells = shared((ceil_div(chunk, _FOUR) * parts, _FOUR))
    four = Local(_FOUR)
    for begin in range(0, count, chunk):
        size = min(chunk, count - begin)
        if begin:
            barrier()
        for first in range(0, size, _FOUR):
            for i in range(_FOUR):
                four[i] = real(0)
                if first + i < size:
                    four[i] = _within_subgroup(gpu, sums[begin + first + i], width)
            with when(tirx.floormod(thread, width) == 0), T.vectorized(_FOUR) as v:
                at = first // _FOUR * parts + tirx.floordiv(thread, width)
                store(cells, four[int32(v)], at, int32(v))
        barrier()
        _write_totals(shape, cells, parts, begin, size, thread, write)


def _write_totals(
    shape: Shape,
    cells: Any,
    parts: int,
    begin: int,
    size: int,
    thread: Expr,
    write: Callable[[Expr, Expr, Expr], None],
) -> None:
    per_team, fours = parts // shape.teams, ceil_div(size, _FOUR)
    with T.serial(ceil_div(fours * shape.teams, shape.threads)) as i:
        output = bind(int32(i) * shape.threads + thread)
        with when(output < fours * shape.teams):
            index, team = bind(output % fours), bind(output // fours)
            start = bind(index * parts + team * per_team)
            total = Local(_FOUR)
            with T.vectorized(_FOUR) as v:
                store(total.buffer, cells[start, int32(v)], int32(v))
            with T.serial(per_team - 1) as j, T.vectorized(_FOUR) as v:
                more = cells[start + int32(j) + 1, int32(v)]
                store(total.buffer, total[int32(v)] + more, int32(v))
            for k in range(min(_FOUR, size)):
                at = bind(index * _FOUR + k)
                with when(at < size):
                    write(at + begin, team, total[k])


def _within_subgroup(gpu: Gpu, value: Expr, width: int) -> Expr:
    """The sum over `width` neighbouring threads, in the first of them."""
    cell = Local()
    cell[0] = value
    half = width // 2
    while half:
        mask = T.uint32(0xFFFFFFFF)
        other = T.tvm_warp_shuffle_down(mask, cell[0], half, gpu.subgroup, gpu.subgroup)
        cell[0] = cell[0] + bind(other)
        half //= 2
    return cell[0]
