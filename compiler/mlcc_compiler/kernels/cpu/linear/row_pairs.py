"""`PairedTile`: the register tile for Arm's smmla (i8mm), which takes two rows of x at a time: it
multiplies 2 x 8 by 8 x 2 bytes into four sums. `quantized_tile` chooses between it and
`QuantizedTile` (`quantized_tile.py`), the tile for all other instructions.

The codes are packed as for other Arm CPUs, four k of four columns in a register; two steps with
interleaved lanes are eight k of two columns. Sums are integers, so results are bit-identical to
`QuantizedTile`. A single row uses that: half of a pair would be idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import B, T
from mlcc_compiler.kernels import planes
from mlcc_compiler.kernels.cpu.isa.isa import matrix_dot
from mlcc_compiler.kernels.cpu.linear.packing import CpuPacking
from mlcc_compiler.kernels.cpu.linear.quantized_tile import QuantizedTile
from mlcc_compiler.kernels.cpu.linear.tile import Output, Registers
from mlcc_compiler.kernels.cpu.linear.weights.unpacked_panel import Codes

Expr = Any

_FIRST, _SECOND = [0, 1, 4, 5], [2, 3, 6, 7]
"""The lower and the upper halves of two registers."""
_LOW, _HIGH = [0, 4, 1, 5], [2, 6, 3, 7]
"""Interleaved lanes of two registers, of the first half and of the second."""


def quantized_tile(
    packing: CpuPacking,
    x: Expr,
    x_scale: Expr,
    x_sum: Expr,
    weights: Sequence[Expr],
    output: Output,
) -> QuantizedTile:
    """The emitter of a weight's register tiles, by the available instructions."""
    kind = PairedTile if packing.isa.dot == "neon_i8mm" else QuantizedTile
    return kind(packing, x, x_scale, x_sum, weights, output)


class PairedTile(QuantizedTile):
    """Rows in pairs, where their number and that of the steps are even."""

    def _steps(
        self,
        dots: Registers,
        codes: Sequence[Codes],
        steps: range,
        rows: int,
        row: Expr,
        k: Expr,
    ) -> None:
        if rows % 2 or len(steps) % 2:
            super()._steps(dots, codes, steps, rows, row, k)
            return
        self._exchange(dots, rows)
        for i in range(0, len(steps), 2):
            self._two_steps(dots, codes, steps[i], rows, row, k + i * planes.STEP)
        self._exchange(dots, rows)

    def _exchange(self, dots: Registers, rows: int) -> None:
        """Convert sums between the layouts [row][four columns] and [two columns][two rows]."""
        vectors = self.strip.vectors
        for r in range(0, rows, 2):
            for c in range(vectors):
                first, second = r * vectors + c, (r + 1) * vectors + c
                both = [B.bind(dots.get(first)), B.bind(dots.get(second))]
                dots.set(first, T.Shuffle(both, _FIRST))
                dots.set(second, T.Shuffle(both, _SECOND))

    def _two_steps(
        self,
        dots: Registers,
        codes: Sequence[Codes],
        step: int,
        rows: int,
        row: Expr,
        k: Expr,
    ) -> None:
        """Eight k of every row and column."""
        columns = []
        for each in codes:
            both = [B.bind(T.reinterpret("int32x4", each.step(step + i))) for i in range(2)]
            pairs = [T.Shuffle(both, lanes) for lanes in (_LOW, _HIGH)]
            columns.append([B.bind(T.reinterpret("int8x16", pair)) for pair in pairs])
        for r in range(0, rows, 2):
            halves = [
                B.bind(self.x.vload(list(self._at(self.x, row, r + i, k)), "int8x8"))
                for i in range(2)
            ]
            x = B.bind(T.Shuffle(halves, list(range(16))))
            for c, pairs in enumerate(columns):
                for i, pair in enumerate(pairs):
                    place = (r + i) * self.strip.vectors + c
                    dots.set(place, matrix_dot(dots.get(place), x, pair))
