"""Several weights that multiply one x, by one launch; gate and up with their activation.

Each workgroup takes a tile of one of the weights, whatever their schemes (`gemv.py`, `gemm.py`).
Of up to 64 rows the workgroup that is done last with a tile of gate and the tile of up beside it
computes activation(gate) * up of both, which come from the cache, and rounds it for the next
product. Of more rows that is a launch of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mlcc_compiler.ir._tvm import T, tirx
from mlcc_compiler.kernels.frame import (
    Argument,
    Expr,
    PrimFunc,
    activations,
    f32,
    kernel,
    store,
    u32,
)
from mlcc_compiler.kernels.gpu.device import Gpu
from mlcc_compiler.kernels.gpu.linear.dequantize import UNIT
from mlcc_compiler.kernels.gpu.linear.fragments import async_copy, gemm, gemv, mma
from mlcc_compiler.kernels.gpu.linear.fragments.codes import columns_of
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_outputs import store_groups
from mlcc_compiler.kernels.gpu.linear.fragments.fp8_rows import Fp8Row, row_of
from mlcc_compiler.kernels.gpu.linear.fragments.gemm_tile import tile_for
from mlcc_compiler.kernels.gpu.linear.fragments.lane import LANES, WARPS
from mlcc_compiler.kernels.gpu.linear.fragments.rounded import (
    PAIRED_TILES,
    SHARED_TILES,
    Rounded,
    rounded_arguments,
)
from mlcc_compiler.kernels.gpu.linear.fragments.rounded_rows import (
    gated_fp8,
    gated_rows,
    gated_unit,
    gated_values,
)
from mlcc_compiler.kernels.gpu.linear.matrix_tile import ROWS
from mlcc_compiler.kernels.gpu.linear.packing import GpuPacking
from mlcc_compiler.kernels.gpu.linear.variants import Variant, first_that_takes
from mlcc_compiler.kernels.gpu.linear.weight_reader import WeightReader, weight_arguments
from mlcc_compiler.kernels.gpu.linear.work_item import LinearWork
from mlcc_compiler.kernels.gpu.workgroup import bind, ceil_div, int32, launch, shared, when, zeros


@dataclass(frozen=True)
class Gate:
    """What is made of gate and up, which are the halves of y."""

    kind: str
    """Of the activation."""
    order: tuple[int, ...]
    """Of the columns of a unit in the result, two a pair."""
    fp8: Fp8Row | None = None
    """The form of the result, if it is 8-bit floats in groups."""


def joins(gpu: Gpu, forms: Sequence[GpuPacking]) -> bool:
    """Whether one launch can multiply x by all of these weights."""
    alike = {
        (form.k, form.scheme.bits == 16, columns_of(form), row_of(gpu, form))
        for form in forms
        if form.fragments
    }
    return len(alike) == 1 and all(form.fragments and len(form.parts) == 1 for form in forms)


def joined_arguments(
    gpu: Gpu, forms: Sequence[GpuPacking], bias: bool, result: str, rounded: bool
) -> dict[str, Argument]:
    """([x[n, K]], `Rounded`, the tensors of each weight, [bias f32[N]], y result[n, N]), where N is
    that of all weights together. rounded: x is given as pairs only."""
    k, columns = forms[0].k, sum(form.n for form in forms)
    found = {} if rounded else {"x": activations(gpu, "n", k)}
    found |= rounded_arguments(k, row_of(gpu, forms[0]))
    for number, form in enumerate(forms):
        of_one = weight_arguments(form, 0)
        found |= {f"{name}{number}": argument for name, argument in of_one.items()}
    if bias:
        found["bias"] = f32(columns)
    return {**found, "y": Argument(("n", columns), result)}


def joined_linear(
    gpu: Gpu,
    forms: tuple[GpuPacking, ...],
    bias: bool,
    result: str,
    rounded: bool,
) -> PrimFunc:
    """`joined_arguments`: y = x @ W.T (+ bias), the weights one below the other."""

    def body(*buffers: Expr) -> None:
        work = _Joined(gpu, forms, bias, rounded, buffers)
        first_that_takes(work.x.shape[0], work.variants())

    return kernel(body, **joined_arguments(gpu, forms, bias, result, rounded))


def gated_linear(
    gpu: Gpu,
    forms: tuple[GpuPacking, ...],
    bias: bool,
    rounded: bool,
    gate: Gate,
) -> PrimFunc:
    """(`joined_arguments`, products u32[n, N / 4]) -> y = (x @ gate.T, x @ up.T), and activation(
    gate) * up as pairs of float16, or as 8-bit floats."""
    columns = sum(form.n for form in forms)

    def body(*buffers: Expr) -> None:
        *others, products = buffers
        work = _Joined(gpu, forms, bias, rounded, others, _Gated(gpu, gate, others[-1], products))
        first_that_takes(work.x.shape[0], work.variants())

    arguments = joined_arguments(gpu, forms, bias, "float32", rounded)
    words = gate.fp8.words if gate.fp8 else columns // 4
    return kernel(body, **arguments, products=u32("n", words))


class _Joined:
    """The launches."""

    def __init__(
        self,
        gpu: Gpu,
        forms: Sequence[GpuPacking],
        bias: bool,
        rounded: bool,
        buffers: Sequence[Any],
        gated: _Gated | None = None,
    ) -> None:
        *before, y = buffers
        bias_buffer = before.pop() if bias else None
        first = 0 if rounded else 1
        self.rounded = Rounded(*before[first : first + 3])
        self.forms, self.gpu, self.gated = forms, gpu, gated
        self.x = self.rounded.pairs if row_of(gpu, forms[0]) else before[0]
        tensors, row = before[first + 3 :], 0
        self.members: list[tuple[WeightReader, LinearWork]] = []
        for form in forms:
            count = len(form.columns)
            reader = WeightReader(gpu, form, tensors[:count])
            finish = partial(_finish, y, bias_buffer, row)
            self.members.append((reader, LinearWork(self.x, form.n, finish)))
            tensors, row = tensors[count:], row + form.n

    def variants(self) -> list[Variant]:
        """The kernels by rows of x."""
        return [(gemv.COLUMNS, self._few), *((rows, partial(self._many, rows)) for rows in ROWS)]

    def _few(self) -> None:
        sizes = [form.n for form in self.forms]
        counts = [gemv.workgroups_of(size) for size in sizes]
        widths = {gemv.columns_of_workgroup(size) for size in sizes}
        pairs = self.gated is not None and len(widths) == 1 and self.gated.fits(*widths)
        grid = sum(counts), self.members[0][1].blocks(gemv.COLUMNS)
        registers = gemv.registers(self.forms, str(self.x.dtype) == "uint32")
        with launch(grid, (LANES, WARPS)) as (block, y, lane, warp), registers:
            cells, number = gemv.Cells(sizes), shared((1,), "int32") if pairs else None
            if number is not None:
                store(number, block, 0)

            def emit(member: int, first: int) -> None:
                at = bind(block - first), y, lane, warp
                gemv.tile_products(*self.members[member], gemv.COLUMNS, at, cells)

            _by_block(block, counts, emit)
            if number is not None and self.gated is not None:
                tile, place = (gemv.COLUMNS, min(widths)), (bind(number[0]), int32(0))
                self.gated.after(self.rounded, tile, place, bind(warp * LANES + lane))
        if self.gated is not None and not pairs:
            self.gated.alone()

    def _many(self, rows: int) -> None:
        single = rows < ROWS[-1]
        tiles = [tile_for(self.gpu, rows, form) for form in self.forms]
        width = tiles[0].columns
        pairs = self.gated is not None and single and self.gated.fits(width)
        splits = [
            gemm.split_of(*member, tile, single=single, share=True)
            for member, tile in zip(self.members, tiles, strict=True)
        ]
        counts = [split.columns for split in splits]
        splits = [
            replace(split, first=sum(counts[:i]), others=sum(counts) - counts[i])
            for i, split in enumerate(splits)
        ]
        with (
            launch(splits[0].grid, (LANES, WARPS)) as (block, y, lane, warp),
            mma.workgroups(tiles[0].workgroups),
        ):
            ring = gemm.ring_for(tiles)
            thread = bind(warp * LANES + lane)

            def after(row: Expr) -> None:
                assert self.gated is not None
                self.gated.after(self.rounded, (rows, width), (block, row), thread)

            def emit(number: int, first: int) -> None:
                own = bind(block - first)
                gemm.tile_products(
                    *self.members[number],
                    splits[number],
                    self.rounded,
                    (own, y, lane, warp),
                    ring,
                    after if pairs else None,
                )

            _by_block(block, counts, emit)
        if self.gated is not None and not pairs:
            self.gated.alone()


def _finish(y: Any, bias: Any, first: int, m: Expr, n: Expr, value: Expr) -> None:
    column = n + first
    store(y, value if bias is None else value + bias[column], m, column)


def _by_block(block: Expr, counts: Sequence[int], emit: Callable[[int, int], None]) -> None:
    """emit(weight, its first workgroup), for the weight that `block` belongs to."""

    def of(number: int) -> None:
        first = sum(counts[:number])
        if number == len(counts) - 1:
            emit(number, first)
            return
        with T.If(block < first + counts[number]):
            with T.Then():
                emit(number, first)
            with T.Else():
                of(number + 1)

    of(0)


class _Gated:
    """activation(gate) * up of y's halves."""

    def __init__(self, gpu: Gpu, gate: Gate, y: Any, products: Any) -> None:
        self.gpu, self.gate, self.y, self.products = gpu, gate, y, products
        self.inner = int(y.shape[1]) // 2

    def fits(self, width: int) -> bool:
        """Whether tiles of that many columns lie in pairs, each of which has a counter; whole
        groups of 8-bit floats may be several pairs."""
        whole = width * self._together(width)
        if self.gate.fp8 and whole % self.gate.fp8.group:
            return False
        return self.inner % whole == 0 and self.inner // whole <= PAIRED_TILES

    def _together(self, width: int) -> int:
        """Pairs of tiles that are computed at once."""
        return max(1, self.gate.fp8.group // width) if self.gate.fp8 else 1

    def after(self, x: Rounded, tile: tuple[int, int], at: tuple[Expr, Expr], thread: Expr) -> None:
        """Emit what the workgroup does that wrote a tile: (rows, columns) at (column, row)."""
        (rows, columns), (column, row) = tile, at
        together = self._together(columns)
        columns, threads = columns * together, LANES * WARPS
        pairs = self.inner // columns
        place = bind(column // together % pairs)
        counter = x.counters[SHARED_TILES + row * pairs + place]
        units = columns // UNIT
        with (
            when(async_copy.is_last(counter, 2 * together)),
            T.serial(ceil_div(rows * units, threads)) as i,
        ):
            unit = bind(int32(i) * threads + thread)
            m = bind(row * rows + unit // units)
            inside = tirx.all(unit < rows * units, m < self.y.shape[0])
            self._unit(m, bind(place * units + unit % units), inside, thread)

    def alone(self) -> None:
        """Emit the launch that does the same when y is written."""
        if self.gate.fp8:
            gated_fp8(self.gpu, self.y, self.products, self.gate.kind, self.gate.fp8)
        else:
            gated_rows(self.gpu, self.y, self.products, self.gate.kind, self.gate.order)

    def _unit(self, m: Expr, unit: Expr, inside: Expr, thread: Expr) -> None:
        kind, form, threads = self.gate.kind, self.gate.fp8, (thread, LANES * WARPS)
        if form is None:
            with when(inside):
                gated_unit(self.y, self.products, kind, self.gate.order, m, unit)
            return
        values = zeros(UNIT)
        with when(inside):
            for i, value in enumerate(gated_values(self.y, kind, m, unit)):
                values[i] = value
        held = [values[i] for i in range(UNIT)]
        store_groups(self.gpu, self.products, m, form, held, unit, threads, inside)
