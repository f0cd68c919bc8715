"""y = x @ weight.T for many rows, by AMX's products of bf16: weights of bf16, or of codes.

Weights become bf16 in scratch, a panel at a time (`amx_panel.py`); x is rounded to bf16, once for
all readers, also for codes: a scaled panel needs no scales of x. A kernel runs

    for each block of at most 512 rows and each panel of up to 128 columns, in parallel:
        for each chunk of at most 512 k:
            make the panel's chunk: it lies in the second cache, and serves all rows
            for each 32 rows of the block, whose chunk fits the first, and each 32 columns:
                sums in registers, from scratch and back to it; at the last chunk to y

64 weights of a panel of codes are 23 vector instructions, 12 cycles, in which AMX multiplies as
many with 190 rows, and VNNI, which needs no panel, with 24. So below 32 rows there is nothing to
gain, and the few-row kernel, which this one contains, runs instead. Its x is rounded differently if
weights are codes: by group to 8 bits, which is coarser.

Not int8 (TDPBUSD): codes have a scale for every 32 k, half of what its registers take, and moving
sums out of registers, scaling and adding them costs more than so short a product. Speed is
unproven: the machines that this was written on had no AMX
(tests/compiler/kernels/linear/test_amx.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T, tirx
from mlcc_compiler.kernels.cpu.isa import amx
from mlcc_compiler.kernels.cpu.isa.isa import Isa
from mlcc_compiler.kernels.cpu.linear.amx_panel import fits, write_panel
from mlcc_compiler.kernels.cpu.linear.bf16 import linear_bf16, round_rows
from mlcc_compiler.kernels.cpu.linear.packing import COLUMN_VECTORS, CpuPacking
from mlcc_compiler.kernels.cpu.linear.quantize_rows import quantize_rows
from mlcc_compiler.kernels.cpu.linear.quantized import Part, linear_merged
from mlcc_compiler.kernels.cpu.linear.tile import OPAQUE, Output, Registers, Strip
from mlcc_compiler.quantization import Scheme

Expr = Any

MANY = amx.SIDE
"""Rows from which on it is used."""
_BLOCK = 16
"""Squares of rows in a block: its sums are kept, 64 KiB for 32 columns."""
_CHUNK = 16
"""Steps of 32 k in a chunk: 32 KiB of 32 columns."""
_PANEL = 4
"""Tiles of 32 columns in a panel: each k of x that is read serves all of them."""
_TASKS = 16
"""Panels that a matrix should have, to keep all threads busy."""
_STORED = 4
"""Rows written to y at a time."""


def uses_amx(isa: Isa, k: int, scheme: Scheme) -> bool:
    """Whether many rows of k multiply such a weight by AMX."""
    whole = isa.activation_parts == 1 and isa.activation_dtype == "float32"
    return isa.has_tiles and whole and fits(CpuPacking(isa.lanes, k, scheme, isa))


def rows_both_ways(isa: Isa, k: int, group: int, sums: int) -> Expr:
    """PrimFunc(x f32[n, K], xq, x_scale, x_sum, y u16[n, K]): outputs of `quantize_rows` and
    `round_rows`; y only for many rows."""
    codes, bits = quantize_rows(isa, k, group, sums), round_rows(isa, k)
    x, y = bits.params
    rest = tirx.IfThenElse(y.ty.shape[0] >= MANY, bits.body, None)
    both = tirx.SeqStmt([codes.body, rest])
    apart = tirx.PrimFunc([*codes.params, x, y], both, attrs=codes.attrs)
    return apart.specialize({x: codes.params[0]})


def linear_many(
    isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, result: str = "float32"
) -> Expr:
    """PrimFunc(xq, x_scale, x_sum, x u16[n, K], weights, [bias], y), inputs of `rows_both_ways`;
    for bf16 PrimFunc(x u16[n, K], weight, [bias], y). Parts are those of `linear_merged`."""
    many = _product(isa, parts, k, bias, result)
    (n_out, scheme), *_ = parts
    if scheme.is_float:
        few, own = linear_bf16(isa, n_out, k, scheme, bias, result), 0
    else:
        few, own = linear_merged(isa, parts, k, bias, result), 3
    shared = few.params[own:]
    by_rows = tirx.IfThenElse(many.params[-1].ty.shape[0] >= MANY, many.body, few.body)
    apart = tirx.PrimFunc([*few.params, *many.params], by_rows, attrs=many.attrs)
    return apart.specialize(dict(zip(shared, many.params[-len(shared) :], strict=True)))


def _product(isa: Isa, parts: tuple[Part, ...], k: int, bias: bool, result: str) -> Expr:
    """PrimFunc(x u16[n, K], weights, [bias f32[N]], y result[n, N]) for at least MANY rows."""
    forms = [CpuPacking(n, k, scheme, isa) for n, scheme in parts]
    columns = sum(n for n, _ in parts)
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE})
        x_handle = B.arg("x", T.handle())
        weights = [
            [B.arg(f"weight{i}{t.suffix}", B.buffer(t.shape, t.dtype)) for t in form.tensors]
            for i, form in enumerate(forms)
        ]
        bias_buffer = B.arg("bias", B.buffer((columns,), "float32")) if bias else None
        y_handle = B.arg("y", T.handle())
        n = T.int64()
        x = B.match_buffer(x_handle, (n, k), "uint16")
        y = B.match_buffer(y_handle, (n, columns), result)
        first = 0
        with amx.imported():
            for form, tensors in zip(forms, weights, strict=True):
                AmxGemm(form, x, tensors, Output(form, y, bias_buffer, first=first)).emit(n)
                first += form.n
    return builder.get()


class AmxGemm:
    """Emits the product with one weight."""

    def __init__(self, packing: CpuPacking, x: Expr, weights: Sequence[Expr], output: Output):
        self.p, self.x, self.weights, self.output = packing, x, weights, output
        self.panel = _divisor(packing.tiles, min(_PANEL, packing.tiles // _TASKS))
        self.steps = packing.k // amx.DEPTH
        self.chunk = _divisor(self.steps, _CHUNK)

    def emit(self, n: Expr) -> None:
        """Emit the loops over blocks of rows, in equal shares, and over panels."""
        panels, most = self.p.tiles // self.panel, _BLOCK * amx.SIDE
        blocks = B.bind((n + (most - 1)) // most)
        with B.parallel(blocks * panels) as index:
            share = B.bind((n + (blocks * amx.SIDE - 1)) // (blocks * amx.SIDE) * amx.SIDE)
            begin = B.bind(index // panels * share)
            squares = B.bind((T.min(begin + share, n) - begin + (amx.SIDE - 1)) // amx.SIDE)
            self._task(n, begin, squares, B.bind(index % panels * self.panel))

    def _task(self, n: Expr, begin: Expr, squares: Expr, tile: Expr) -> None:
        square = amx.SIDE * amx.SIDE
        panel = B.alloc_buffer((self.panel * self.chunk * amx.STEP_WORDS,), "int32")
        sums = B.alloc_buffer((_BLOCK * self.panel * square,), "float32")
        with amx.tiles(), B.serial(self.steps // self.chunk) as chunk:
            first = B.bind(chunk * self.chunk)
            with B.serial(self.panel) as t, B.serial(self.chunk) as i:
                word = B.bind((t * self.chunk + i) * amx.STEP_WORDS)
                write_panel(self.p, self.weights, tile + t, first + i, panel, word)
            with B.serial(squares) as s, B.serial(self.panel) as t:
                # The last square moves up to end where the rows do: what is computed twice there
                # comes to the same numbers, and each square has sums of its own.
                row = B.bind(T.min(begin + s * amx.SIDE, n - amx.SIDE))
                place = B.bind((s * self.panel + t) * square)
                self._square(row, first, panel, t, sums, place)
                with B.If(chunk == self.steps // self.chunk - 1), B.Then():
                    self._store(row, tile + t, sums, place)

    def _square(
        self, row: Expr, first: Expr, panel: Expr, t: Expr, sums: Expr, place: Expr
    ) -> None:
        """Add a chunk to 32 rows of 32 columns."""
        with B.If(first == 0):
            with B.Then():
                amx.zero()
            with B.Else():
                amx.load(T.address_of(sums[place]))
        with B.serial(self.chunk) as i:
            rows = T.address_of(self.x[row, (first + i) * amx.DEPTH])
            columns = T.address_of(panel[(t * self.chunk + i) * amx.STEP_WORDS])
            amx.add(rows, 2 * self.p.k, columns)
        amx.store(T.address_of(sums[place]))

    def _store(self, row: Expr, tile: Expr, sums: Expr, place: Expr) -> None:
        """From scratch to y, through the store of all linear kernels."""
        lanes = self.p.isa.lanes
        strip = Strip(0, 1, COLUMN_VECTORS, lanes)
        vectors = _STORED * COLUMN_VECTORS
        with B.serial(amx.SIDE // _STORED) as part:
            some = Registers(vectors, lanes, "float32")
            for i in range(vectors):
                start = place + (part * vectors + i) * lanes
                some.set(i, sums.vload([start], f"float32x{lanes}"))
            self.output.store(some, _STORED, row + part * _STORED, tile, strip)


def _divisor(number: int, most: int) -> int:
    """The largest divisor that is at most `most`; at least 1."""
    return next((d for d in range(most, 1, -1) if number % d == 0), 1)
