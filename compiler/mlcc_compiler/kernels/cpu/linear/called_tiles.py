"""Products with codes call a function for the rows of a tile, which the products of a library have
in common: it knows a weight's form (`packing.py`) and the length of rows, and is given where the
columns lie in y. What it does is `quantized.py`, or `amx_bytes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlcc_compiler.ir._tvm import B, IRBuilder, T
from mlcc_compiler.kernels.called_functions import call_function, function_of
from mlcc_compiler.kernels.cpu.isa.stack import aligned_stack
from mlcc_compiler.kernels.cpu.isa.vector_math import bind
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.tile import Output
from mlcc_compiler.kernels.cpu.linear.weights.codes import looks_up

Expr = Any

SumsKey = tuple[int, int | None]
"""Of sums of all rows: their group and factor (`row_sums.py`)."""


@dataclass(frozen=True)
class QuantizedRows:
    """x as products read it: int8 [n, K], scales float32 and sums int32."""

    n: Expr
    x: Expr
    x_scale: Expr
    x_sum: Expr


@dataclass(frozen=True)
class TileArguments:
    """What a function of tiles is given, of one weight."""

    rows: QuantizedRows
    form: CpuPacking
    weights: list[Expr]
    output: Output
    begin: Expr
    end: Expr
    tile: Expr
    sums: dict[SumsKey, Expr]
    """Pointers to sums of all rows."""


class CalledTiles:
    """Emits the calls of the function that factory(form, bias, result, keys) makes, for the
    tiles of one weight of a product; keys: of the sums of all rows that it reads."""

    def __init__(
        self,
        factory: Callable[..., Expr],
        rows: QuantizedRows,
        form: CpuPacking,
        weights: list[Expr],
        output: Output,
        keys: Sequence[SumsKey],
    ) -> None:
        bias = [] if output.bias is None else [output.bias]
        made = (_any_tiles(form), len(bias) > 0, str(output.y.dtype), tuple(keys))
        self.name, self.form = function_of(factory, *made), form
        self.arrays = [rows.x, rows.x_scale, rows.x_sum, *weights, output.y, *bias]
        self.sums = [rows.x_sum.data for _ in keys]
        """Where the sums are; until they are made, any place."""
        self.n, self.places = rows.n, [T.int64(int(output.y.shape[1])), T.int64(output.first)]

    def call(self, begin: Expr, end: Expr, tile: Expr) -> None:
        """Rows begin..end of a tile."""
        pointers = [array.data for array in self.arrays]
        # In cells: numbers are 64 bits wide, also where TVM would narrow an expression.
        given = [bind(T.Cast("int64", number)) for number in (begin, end, tile)]
        numbers = [self.n, *given, *self.places]
        call_function(self.name, *pointers, *numbers, *self.sums)


def _any_tiles(form: CpuPacking) -> CpuPacking:
    """The form of a weight with any number of tiles, if all its tiles are whole, on a CPU with the
    instructions that its tiles are read by: levels with others beside them have it in common."""
    permutes = form.isa.has_permutes and looks_up(form.scheme)
    isa = replace(form.isa, name="", has_tiles=False, has_bf16=False, has_permutes=permutes)
    return replace(form, n=form.n if form.n % form.width else form.width, isa=isa)


def tile_function(
    form: CpuPacking,
    bias: bool,
    result: str,
    keys: Sequence[SumsKey],
    body: Callable[[TileArguments], None],
) -> Expr:
    """PrimFunc(x, x_scale, x_sum, the weight's tensors, y, [bias], rows of x, begin, end, tile,
    columns of y, the weight's first column in y, sums of all rows) of a body."""
    arrays, of_x = _arrays(form, bias, result), 3
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.is_scheduled": True})
        pointers = [B.arg(f"array{i}", T.handle(kind)) for i, (_, kind) in enumerate(arrays)]
        names = ("n", "begin", "end", "tile", "columns", "first")
        n, begin, end, tile, columns, first = (B.arg(name, T.int64()) for name in names)
        kinds = ["float32" if factor is None else "int32" for _, factor in keys]
        sums = [B.arg(f"sums{i}", T.handle(kind)) for i, kind in enumerate(kinds)]
        sizes = {"n": n, "tiles": tile + 1, "columns": columns}
        buffers = [
            B.decl_buffer([sizes.get(size, size) for size in shape], kind, data=pointer)
            for (shape, kind), pointer in zip(arrays, pointers, strict=True)
        ]
        weights, rest = buffers[of_x:][: len(form.tensors)], buffers[of_x + len(form.tensors) :]
        output = Output(form, rest[0], rest[1] if bias else None, first=first)
        rows, places = QuantizedRows(n, *buffers[:of_x]), dict(zip(keys, sums, strict=True))
        with aligned_stack(form.isa.vector_bits):
            body(TileArguments(rows, form, weights, output, begin, end, tile, places))
    return builder.get()


def _arrays(form: CpuPacking, bias: bool, result: str) -> list[tuple[tuple[Any, ...], str]]:
    """Shape and dtype of each array; a name is a size that varies."""
    x = [(("n", width), kind) for width, kind in input_shapes(form, form.k)]
    weights = [(("tiles", *t.shape[1:]), t.dtype) for t in form.tensors]
    return [*x, *weights, (("n", "columns"), result), *[(("columns",), "float32")] * bias]


def input_shapes(form: CpuPacking, width: int) -> list[tuple[int, str]]:
    """Row length and dtype of the three arrays that represent x, of rows of `width`."""
    rows, all_parts = form.rows, width * form.isa.activation_parts
    counts = [(all_parts // rows.group, "float32"), (all_parts // rows.sums, "int32")]
    return [(all_parts, "int8"), *counts]
