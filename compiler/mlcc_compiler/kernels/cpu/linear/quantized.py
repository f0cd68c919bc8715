"""y = x @ weight.T for weights of 4 or 8 bits: byte dot products in 32-bit lanes.

Both sides are quantized by group along K (the scheme of GGUF's Q4_0 x Q8_0), so a group's sum is
exact in int32 and the float work is one conversion, one product and one add per group:

    y[i, j] += w_scale[j, g] * x_scale[i, g] * (sum over the group of code * x - zero * x_sum[i, g])

The accumulator starts at -zero * x_sum, which makes unsigned codes free. Not here: how x is
quantized (`rows.py`), the loops (`tile.py`), the byte order (`packing.py`).
"""

from typing import Any

from mlcc_compiler._tvm import B, IRBuilder, T
from mlcc_compiler.kernels.cpu.isa import Isa, dot4
from mlcc_compiler.kernels.cpu.linear.packing import COLUMN_VECTORS, CpuPacking
from mlcc_compiler.kernels.cpu.linear.tile import (
    OPAQUE,
    Output,
    Registers,
    for_each_tile,
    prefetch,
    rows_ahead,
)
from mlcc_compiler.kernels.cpu.linear.widen import widen
from mlcc_compiler.quantization import Scheme

Expr = Any

_UNROLL = 8
"""Most code vectors unrolled; longer groups loop."""


def linear_quantized(
    isa: Isa, n_out: int, k: int, scheme: Scheme, bias: bool, result: str = "float32"
) -> Expr:
    """PrimFunc(xq i8[n, K], x_scale f32[n, G], x_sum i32[n, G], codes, scales, [zeros], [bias], y).

    G = K / group. The weight's tensors are those of `CpuPacking.tensors`; bias f32[N], y
    result[n, N].
    """
    packing = CpuPacking(n_out, k, scheme, isa)
    with IRBuilder() as builder, B.prim_func(s_tir=True, private=True):
        B.func_attr({"tirx.noalias": True, "tirx.is_scheduled": True, "op_pattern": OPAQUE})
        handles = [B.arg(name, T.handle()) for name in ("xq", "x_scale", "x_sum")]
        weights = [B.arg(t.suffix[1:], B.buffer(t.shape, t.dtype)) for t in packing.tensors]
        bias_buffer = B.arg("bias", B.buffer((n_out,), "float32")) if bias else None
        y_handle = B.arg("y", T.handle())
        n = T.int64()
        shapes = [(k, "int8"), (packing.groups, "float32"), (packing.groups, "int32")]
        x, x_scale, x_sum = (
            B.match_buffer(h, (n, width), dtype)
            for h, (width, dtype) in zip(handles, shapes, strict=True)
        )
        output = Output(packing, B.match_buffer(y_handle, (n, n_out), result), bias_buffer)
        kernel = QuantizedTile(packing, x, x_scale, x_sum, weights, output)
        for_each_tile(packing, n, k, row_tiles(isa), kernel.tile)
    return builder.get()


def row_tiles(isa: Isa) -> tuple[int, ...]:
    """An int32 and a float sum per row and column vector, beside codes and activations."""
    return (6, 4, 2, 1) if isa.registers >= 32 else (4, 2, 1)


class QuantizedTile:
    """The body of one register tile: some rows of x times a tile of the weight's columns."""

    def __init__(
        self,
        packing: CpuPacking,
        x: Expr,
        x_scale: Expr,
        x_sum: Expr,
        weights: list[Expr],
        output: Output,
    ) -> None:
        self.p, self.isa, self.lanes = packing, packing.isa, packing.isa.lanes
        self.x, self.x_scale, self.x_sum = x, x_scale, x_sum
        self.codes, self.scales = weights[:2]
        self.zeros = weights[2] if len(weights) > 2 else None
        self.output = output

    def tile(self, rows: int, row: Expr, tile: Expr) -> None:
        """Emit it."""
        sums = Registers(rows * COLUMN_VECTORS, self.lanes, "float32")
        with B.unroll(rows * COLUMN_VECTORS) as i:
            sums.set(i, T.Broadcast(T.float32(0), self.lanes))
        with B.serial(self.p.groups) as group:
            dots = self._start(rows, row, tile, group)
            self._dot(dots, rows, row, tile, group)
            self._scale(sums, dots, rows, row, tile, group)
        self.output.store(sums, rows, row, tile)

    def _start(self, rows: int, row: Expr, tile: Expr, group: Expr) -> Registers:
        """Accumulators at -zero * x_sum."""
        dots = Registers(rows * COLUMN_VECTORS, self.lanes, "int32")
        shift = 128 if self.p.scheme.bits == 8 and self.isa.signed_codes else 0
        zeros = self._zeros(tile, group, shift)
        with B.unroll(rows) as r:
            x_sum = self.x_sum[row + r, group]
            if not zeros:
                start = T.Broadcast(x_sum * T.int32(shift - self.p.scheme.middle), self.lanes)
                parts = [start] * COLUMN_VECTORS
            else:
                negative = B.bind(T.Broadcast(T.int32(0) - x_sum, self.lanes))
                parts = [zero * negative for zero in zeros]
            for c, part in enumerate(parts):
                dots.set(r * COLUMN_VECTORS + c, part)
        return dots

    def _dot(self, dots: Registers, rows: int, row: Expr, tile: Expr, group: Expr) -> None:
        """Add all steps of a group."""
        per_byte, steps = self.p.codes_per_byte, self.p.steps
        first, ahead = group * self.p.vectors, rows_ahead(self.codes)
        prefetch(self.scales, tile, group, max(ahead // self.p.vectors, 1))

        def vector(v: Expr, count: int) -> None:
            words = [
                B.bind(self.codes.vload([tile, first + v, 4 * c * self.lanes], self._bytes))
                for c in range(COLUMN_VECTORS)
            ]
            prefetch(self.codes, tile, first + v, ahead)
            for half in range(count):
                k = group * self.p.group + v * (4 * per_byte) + 4 * half
                self._step(dots, [self._nibble(w, half) for w in words], rows, row, k)

        whole = steps // per_byte
        block = max(b for b in range(1, _UNROLL + 1) if whole % b == 0)
        with B.serial(whole // block) as i, B.unroll(block) as v:
            vector(i * block + v, per_byte)
        if steps % per_byte:
            vector(whole, steps % per_byte)

    def _step(self, dots: Registers, codes: list[Expr], rows: int, row: Expr, k: Expr) -> None:
        """Four k of every row and column."""
        codes = [B.bind(c) for c in codes]
        with B.unroll(rows) as r:
            four = T.reinterpret("int32", self.x.vload([row + r, k], "int8x4"))
            x = B.bind(T.reinterpret(f"int8x{4 * self.lanes}", T.Broadcast(four, self.lanes)))
            for c in range(COLUMN_VECTORS):
                i = r * COLUMN_VECTORS + c
                dots.set(i, dot4(self.isa, dots.get(i), codes[c], x, self.p.scheme.bits))

    def _nibble(self, words: Expr, half: int) -> Expr:
        if self.p.scheme.bits == 8:
            return words
        lanes = 4 * self.lanes
        if half:
            return words >> T.Broadcast(T.uint8(4), lanes)
        return words & T.Broadcast(T.uint8(15), lanes)

    def _scale(
        self, sums: Registers, dots: Registers, rows: int, row: Expr, tile: Expr, group: Expr
    ) -> None:
        """Add a group's exact sums, scaled, to the float sums."""
        kind = f"float32x{self.lanes}"
        scales = [
            B.bind(widen(self.isa, self.scales, [tile, group, c * self.lanes], self.lanes))
            for c in range(COLUMN_VECTORS)
        ]
        with B.unroll(rows) as r:
            x_scale = B.bind(T.Broadcast(self.x_scale[row + r, group], self.lanes))
            for c in range(COLUMN_VECTORS):
                i = r * COLUMN_VECTORS + c
                sums.set(i, sums.get(i) + T.Cast(kind, dots.get(i)) * (scales[c] * x_scale))

    def _zeros(self, tile: Expr, group: Expr, shift: int) -> list[Expr]:
        """Zero points as i32 vectors, less what the stored codes are short of; empty = constant."""
        zeros = self.zeros
        if zeros is None:
            return []
        less = T.Broadcast(T.int32(shift), self.lanes)
        stored = [
            zeros.vload([tile, group, c * self.lanes], f"uint8x{self.lanes}")
            for c in range(COLUMN_VECTORS)
        ]
        return [B.bind(T.Cast(f"int32x{self.lanes}", v) - less) for v in stored]

    @property
    def _bytes(self) -> str:
        return f"uint8x{4 * self.lanes}"
