"""y = x @ W.T for few rows of x: a stream over W at the speed of memory.

A team of lanes takes a few neighbouring rows of W and walks along K, a lane a few units of eight
weights at a time, neighbours to neighbours; each weight is read once from memory and multiplied
with up to 8 rows of x, which come from the cache (8 x 8192 f32 are 256 KiB, shared by all
workgroups). Sums are float32 registers, added up over the lanes at the end.

Shapes: 128 threads, teams of 32 lanes, 4 rows a team. A small W has fewer rows a team, until there
are 256 workgroups (an H200 has 132 multiprocessors), and more lanes, until there are four times as
many or a lane has four units left: N = K = 2048 is 512 workgroups of 4 rows, N = 2048, K = 8192
is 1024 of 2, N = 8192, K = 2048 is 1024 of 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler._tvm import T, tirx
from mlcc_compiler.kernels.frame import Expr
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.codes import UNIT, load
from mlcc_compiler.kernels.gpu.linear.job import Job
from mlcc_compiler.kernels.gpu.linear.weight import Block, Scaling, WeightReader
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
_WORKGROUPS = 256
_LEAST_UNITS = 4
_CELLS = 2048
"""Floats of workgroup memory for the sums of lanes: 8 KiB."""


@dataclass(frozen=True)
class Shape:
    """How the rows of W and the steps along K are shared out."""

    threads: int
    lanes: int
    rows: int
    units: int
    """Read at a time by a lane."""

    @property
    def teams(self) -> int:
        return self.threads // self.lanes


def shape_for(gpu: Gpu, reader: WeightReader, n_out: int, columns: int) -> Shape:
    """`columns`: rows of x that are multiplied at once."""
    units = 1
    if not gpu.narrow_types:  # widening a scale takes ten instructions: once for four units
        units = next(
            u for u in (4, 2, 1) if reader.units % u == 0 and (u == 1 or reader.shares_scale(u))
        )
    threads, lanes = min(THREADS, gpu.threads), 32
    rows = 4 if columns <= 8 else 2
    while rows > 1 and n_out * lanes < _WORKGROUPS * threads * rows:
        rows //= 2
    while (
        lanes < threads
        and n_out * lanes < 4 * _WORKGROUPS * threads * rows
        and reader.units >= 2 * lanes * _LEAST_UNITS
    ):
        lanes *= 2
    return Shape(threads, lanes, rows, units)


def gemv(gpu: Gpu, reader: WeightReader, job: Job, columns: int) -> None:
    """Emit the launch: tiles of `columns` rows of x (up to 8), each a stream over its rows of W."""
    shape = shape_for(gpu, reader, job.n_out, columns)
    blocks = ceil_div(job.n_out, shape.rows * shape.teams)
    with launch((blocks, job.blocks(columns)), (shape.threads,)) as (block, y, thread):
        lane, team = bind(thread % shape.lanes), bind(thread // shape.lanes)
        first = bind((block * shape.teams + team) * shape.rows)
        tile = job.tile(y, columns, thread, shape.threads)
        rows = [tile.w_row(first + r) for r in range(shape.rows)]
        xs = [tile.x_row(int32(m)) for m in range(columns)]
        sums = Local(columns * shape.rows)
        for i in range(columns * shape.rows):
            sums[i] = real(0)
        _stream(reader, shape, lane, lambda unit: _step(reader, shape, job.x, xs, rows, unit, sums))

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
        _unit(reader, x, xs, rows, [None] * len(rows), first, sums)
        return
    scalings = [reader.scaling(row, first) for row in rows]
    with T.serial(shape.units) as u:
        _unit(reader, x, xs, rows, scalings, bind(first + int32(u)), sums)


def _unit(
    reader: WeightReader,
    x: Any,
    xs: list[Any],
    rows: list[Expr],
    scalings: Sequence[Scaling | None],
    unit: Expr,
    sums: Local,
) -> None:
    """Add the products of a unit. Codes are multiplied as they are, and their sum scaled."""
    weights = [reader.read(row, unit, scaling) for row, scaling in zip(rows, scalings, strict=True)]
    for m, row in enumerate(xs):
        values = load(x, row, unit * UNIT, UNIT)
        begin = 0
        for parts in zip(*weights, strict=True):  # those of all rows that begin at one place
            size = len(parts[0].raw)
            _block(values[begin : begin + size], parts, sums, m * len(rows))
            begin += size


def _block(values: list[Expr], blocks: Sequence[Block], sums: Local, first: int) -> None:
    """sums[first + r] += values @ the weights of blocks[r]."""
    offsets = any(b.scaling is not None and b.scaling.offset is not None for b in blocks)
    total = bind(_sum(values)) if offsets else None
    for r, block in enumerate(blocks):
        products = [v * raw for v, raw in zip(values, block.raw, strict=True)]
        if block.scaling is None:
            sums[first + r] = _sum([sums[first + r], *products])
            continue
        sums[first + r] = sums[first + r] + bind(_sum(products)) * block.scaling.scale
        if block.scaling.offset is not None:
            sums[first + r] = sums[first + r] + total * block.scaling.offset


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

    Through registers within a subgroup, where there are any; the rest through shared memory,
    where each total is added up by a thread of its own.
    """
    width = min(gpu.subgroup, shape.lanes) if gpu.subgroup else 1
    parts = shape.threads // width
    chunk = min(count, max(1, _CELLS // parts))
    cells = shared((chunk * (parts + 1),))
    for begin in range(0, count, chunk):
        size = min(chunk, count - begin)
        if begin:
            barrier()
        for i in range(size):
            value = _within_subgroup(gpu, sums[begin + i], width)
            with when(tirx.floormod(thread, width) == 0):
                cells_at = i * (parts + 1) + tirx.floordiv(thread, width)
                T.buffer_store(cells, value, [cells_at])
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
    per_team = parts // shape.teams
    outputs = size * shape.teams
    with T.serial(ceil_div(outputs, shape.threads)) as i:
        output = bind(int32(i) * shape.threads + thread)
        with when(output < outputs):
            index, team = bind(output % size), bind(output // size)
            start = bind(index * (parts + 1) + team * per_team)
            total = Local()
            total[0] = cells[start]
            with T.serial(per_team - 1) as j:
                total[0] = total[0] + cells[start + int32(j) + 1]
            write(index + begin, team, total[0])


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
