"""y = x @ weight.T for many rows, by AMX's products of bf16: weights of bf16, or of codes.

Weights become bf16 in scratch, a panel at a time (`amx_panel.py`); x is rounded to bf16, once for
all readers, also for codes, and lies in tiles (`amx_rows.py`). A kernel runs

    for each block of rows and up to 8 tiles of 32 columns, in parallel:
        for each chunk of k and each of the tiles:
            make the tile's panel of that chunk, which serves all rows
            for each 32 rows of the block:
                sums in registers, from scratch and back to it; after the last chunk to y

The panel stays in the first cache; rows of x are loaded past it. 64 weights of a panel of codes are
23 vector instructions, 12 cycles, in which AMX multiplies as many with 190 rows, and VNNI, which
needs no panel, with 24. So below 32 rows of codes there is nothing to gain, and the kernel for few
rows, which this one contains, runs instead: register tiles, or AMX's products of bytes
(`amx_bytes.py`). Its x is rounded differently if weights are codes: by group to 8 bits, which is
coarser.

On an Emerald Rapids at 3.6 GHz 32 x 32 x 32 products take 22 ns, 18 at the peak. Panels of 256 rows
add a third, and what is written a fifth to a half if it leaves the second cache, which is why gate
and up have `amx_gated.py`.

Not int8 for many rows: codes have a scale for every 32 k, half of what its registers take, and
moving sums out of registers, scaling and adding them costs more than so short a product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T, tirx
from mlcc_compiler.kernels.called_functions import called_by, calling
from mlcc_compiler.kernels.cpu.isa import amx
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.isa.vector_math import bind
from mlcc_compiler.kernels.cpu.linear.amx_bytes import LEAST, linear_bytes, multiplies_bytes
from mlcc_compiler.kernels.cpu.linear.amx_panel import fits, write_panel
from mlcc_compiler.kernels.cpu.linear.amx_rows import TILE, least_rows, tile_at
from mlcc_compiler.kernels.cpu.linear.floats import linear_float
from mlcc_compiler.kernels.cpu.linear.packing import COLUMN_VECTORS, CpuPacking
from mlcc_compiler.kernels.cpu.linear.quantized import Part, linear_merged
from mlcc_compiler.kernels.cpu.linear.tile import OPAQUE, Output, Registers, Strip
from mlcc_compiler.quantization import Scheme

Expr = Any

SQUARE = amx.SIDE * amx.SIDE
"""Sums of 32 rows and 32 columns, row after row."""
_PITCH = 4 * amx.SIDE
"""Bytes between rows of sums."""
_LINE = 64
"""Bytes of a row of a tile."""
_BLOCK = 16
"""Squares of rows in a block at most: its sums are kept, 64 KiB for 32 columns."""
_LEAST_BLOCK = 8
"""At least: a panel is made once for each block, and costs as much as 80 rows. Longer rows pass by
the second-level cache chunk by chunk, in blocks of the most."""
_BLOCK_BYTES = 1 << 20
"""Of rows in a block: half of a second-level cache, as each panel reads them all."""
_CHUNK = 16
"""Steps of 32 k in a chunk: 32 KiB of 32 columns."""
_WHOLE = 18
"""Steps of a row that is one chunk: without sums between chunks."""
_PANEL = 8
"""Tiles of a task at most: they share each chunk of x while it is in the second-level cache."""
_STORED = 4
"""Rows written to y at a time."""
_TASKS = 8
"""Tasks that a matrix should have for each block of rows, to keep all threads busy."""


def uses_amx(isa: Isa, k: int, scheme: Scheme) -> bool:
    """Whether many rows of k multiply such a weight by AMX."""
    whole = isa.activation_parts == 1 and isa.activation_dtype == "float32"
    return isa.has_tiles and whole and fits(CpuPacking(isa.lanes, k, scheme, isa))


def linear_many(
    isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, result: str = "float32"
) -> Expr:
    """PrimFunc(xq, x_scale, x_sum, tiles, weights, [bias], y), inputs of `rows_or_tiles`; for bf16
    PrimFunc(x f32[n, K], tiles, weight, [bias], y), with `round_to_tiles`. Parts are those of
    `linear_merged`."""
    few, many = linear_few(isa, parts, k, bias, result), _product(isa, parts, k, bias, result)
    shared = dict(zip(few.params[few_inputs(parts) :], many.params[1:], strict=True))
    return few_or_many(parts, few, many, shared)


def linear_few(isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, result: str) -> Expr:
    """The kernel for fewer rows than AMX is used for."""
    (n_out, scheme), *_ = parts
    if scheme.is_float:
        return linear_float(isa, n_out, k, scheme, bias, result)
    bytes_too = multiplies_bytes(isa, parts, k)
    few = linear_merged(isa, parts, k, bias, result, few_only=bytes_too)
    if not bytes_too:
        return few
    some = linear_bytes(isa, parts, k, bias, result)
    body = tirx.IfThenElse(few.params[-1].ty.shape[0] >= LEAST, some.body, few.body)
    attrs = calling(few, called_by(some)).attrs
    apart = tirx.PrimFunc([*few.params, *some.params], body, attrs=attrs)
    return apart.specialize(dict(zip(some.params, few.params, strict=True)))


def few_inputs(parts: tuple[Part, ...]) -> int:
    """Arrays that few rows of x are given by: themselves, or codes, scales and sums."""
    return 1 if parts[0][1].is_float else 3


def few_or_many(parts: tuple[Part, ...], few: Expr, many: Expr, shared: Mapping[Any, Any]) -> Expr:
    """The PrimFunc of two with an output each: the inputs of `few` that are not `shared`, those of
    `many`, and the outputs. The rows of the output of `few` decide."""
    (*few_in, few_out), (*many_in, many_out) = few.params, many.params
    least = least_rows(parts[0][1].is_float)
    body = tirx.IfThenElse(few_out.ty.shape[0] >= least, many.body, few.body)
    attrs = calling(many, called_by(few)).attrs
    apart = tirx.PrimFunc([*few_in, *many_in, few_out, many_out], body, attrs=attrs)
    return apart.specialize(dict(shared))


def _product(isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, result: str) -> Expr:
    """PrimFunc(tiles u16[...], weights, [bias f32[N]], y result[n, N]) for many rows."""

    def body(x: Expr, weights: Sequence[PackedWeight], bias_buffer: Expr, y: Expr) -> None:
        first, n = 0, y.shape[0]
        for weight in weights:
            output = Output(weight.packing, y, bias_buffer, first=first)
            store = partial(_store, n, output)
            AmxGemm([weight], weight.packing.tiles, x, store).emit(n)
            first += weight.packing.n

    columns = sum(n for n, _ in parts)
    return amx_kernel(isa, parts, k, bias, (T.int64(), columns), result, body)


@dataclass(frozen=True)
class PackedWeight:
    """A weight's tensors; its columns from tile `first` on are multiplied."""

    packing: CpuPacking
    tensors: Sequence[Expr]
    first: int = 0


def amx_kernel(
    isa: Isa,
    parts: tuple[Part, ...],
    k: int,
    bias: bool,
    shape: tuple[Any, int],
    result: str,
    body: Callable[[Expr, list[PackedWeight], Expr | None, Expr], None],
    functions: str = "",
) -> Expr:
    """PrimFunc(tiles u16[...], weights, [bias f32[N]], y result[shape]) of body(tiles, weights,
    bias, y). functions: LLVM IR of what the body calls beside `amx`."""
    forms = [CpuPacking(n, k, scheme, isa) for n, scheme in parts]
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE})
        x_handle = B.arg("tiles", T.handle())
        weights = [
            [B.arg(f"weight{i}{t.suffix}", B.buffer(t.shape, t.dtype)) for t in form.tensors]
            for i, form in enumerate(forms)
        ]
        columns = sum(n for n, _ in parts)
        bias_buffer = B.arg("bias", B.buffer((columns,), "float32")) if bias else None
        y_handle = B.arg("y", T.handle())
        x = B.match_buffer(x_handle, (T.int64(), TILE), "uint16")
        y = B.match_buffer(y_handle, shape, result)
        with amx.imported(functions):
            body(x, list(map(PackedWeight, forms, weights)), bias_buffer, y)
    return builder.get()


class AmxGemm:
    """Emits the product with the same tiles of one or more weights of equal K; `finish(row, tile,
    sums, places)` emits what becomes of the sums of 32 rows and 32 columns of each weight."""

    def __init__(
        self,
        weights: Sequence[PackedWeight],
        tiles: int,
        x: Expr,
        finish: Callable[[Expr, Expr, Expr, list[Expr]], None],
    ):
        self.weights, self.tiles, self.x, self.finish = weights, tiles, x, finish
        self.k = weights[0].packing.k
        self.panel = _divisor(tiles, min(_PANEL, tiles // _TASKS))
        self.steps = self.k // amx.DEPTH
        self.chunk = self.steps if self.steps <= _WHOLE else _divisor(self.steps, _CHUNK)
        self.chunks = self.steps // self.chunk
        fit = _BLOCK_BYTES // (2 * self.k) // amx.SIDE
        self.block = min(fit, _BLOCK) if fit >= _LEAST_BLOCK else _BLOCK

    def emit(self, n: Expr) -> None:
        """Emit the loops over blocks of rows, in equal shares, and over panels."""
        panels, most = self.tiles // self.panel, self.block * amx.SIDE
        blocks = B.bind((n + (most - 1)) // most)
        with B.parallel(blocks * panels) as index:
            share = bind((n + (blocks * amx.SIDE - 1)) // (blocks * amx.SIDE) * amx.SIDE)
            begin = bind(index // panels * share)
            squares = bind((T.min(begin + share, n) - begin + (amx.SIDE - 1)) // amx.SIDE)
            self._task(begin, squares, bind(index % panels * self.panel))

    def _task(self, begin: Expr, squares: Expr, tile: Expr) -> None:
        count = len(self.weights)
        panel = B.alloc_buffer((self.chunk * amx.STEP_WORDS,), "int32")
        kept = self.panel * self.block if self.chunks > 1 else self.block if count > 1 else 1
        sums = B.alloc_buffer((kept * count * SQUARE,), "float32")
        with amx.tiles(), B.serial(self.chunks) as chunk, B.serial(self.panel) as t:
            first, own = bind(chunk * self.chunk), bind(tile + t)
            for w, weight in enumerate(self.weights):
                self._write_panel(weight, own, first, panel)
                with B.serial(squares) as s:
                    row = bind(begin + s * amx.SIDE)
                    square = bind((t * self.block + s) % kept * count)
                    places = [bind((square + i) * SQUARE) for i in range(count)]
                    self._square(row, first, panel, sums, places[w])
                    if w == count - 1:
                        with B.If(chunk == self.chunks - 1), B.Then():
                            self.finish(row, own, sums, places)

    def _write_panel(self, weight: PackedWeight, tile: Expr, first: Expr, panel: Expr) -> None:
        """A chunk of a tile."""
        with B.serial(self.chunk) as i:
            own, word = tile + weight.first, B.bind(i * amx.STEP_WORDS)
            write_panel(weight.packing, weight.tensors, own, first + i, panel, word)

    def _square(self, row: Expr, first: Expr, panel: Expr, sums: Expr, place: Expr) -> None:
        """Add a chunk to 32 rows of 32 columns."""
        with B.If(first == 0):
            with B.Then():
                amx.zero()
            with B.Else():
                amx.load(T.address_of(sums[place]), _PITCH)
        upper = bind(tile_at(self.k, row, first))
        with B.serial(self.chunk) as i:
            rows = [T.address_of(self.x[upper + part * self.steps + i, 0]) for part in range(2)]
            word = i * amx.STEP_WORDS
            columns = [
                T.address_of(panel[word + side * (amx.STEP_WORDS // 2)]) for side in range(2)
            ]
            amx.add(rows, _LINE, columns, _LINE)
        amx.store(T.address_of(sums[place]), _PITCH)


def _store(n: Expr, output: Output, row: Expr, tile: Expr, sums: Expr, places: list[Expr]) -> None:
    """From scratch to y, the rows that exist, through the store of all linear kernels."""
    lanes, (place,) = output.packing.isa.lanes, places
    strip = Strip(0, 1, COLUMN_VECTORS, lanes)

    def some(rows: int, first: Expr) -> None:
        values = Registers(rows * COLUMN_VECTORS, lanes, "float32")
        for i in range(rows * COLUMN_VECTORS):
            start = place + (first * COLUMN_VECTORS + i) * lanes
            values.set(i, sums.vload([start], f"float32x{lanes}"))
        output.store(values, rows, row + first, tile, strip)

    rows = B.bind(T.min(n - row, amx.SIDE))
    with B.serial(rows // _STORED) as part:
        some(_STORED, part * _STORED)
    with B.serial(rows % _STORED) as left:
        some(1, rows - 1 - left)


def _divisor(number: int, most: int) -> int:
    """The largest divisor that is at most `most`; at least 1."""
    return next((d for d in range(most, 1, -1) if number % d == 0), 1)
