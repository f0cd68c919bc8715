"""Tile shapes of `matrix_gemm.py`.

Few rows of x are bound by reading W: there subgroups split K as well, and tiles are narrow, so that
N = 2048 is 64 workgroups of 32 columns. From N = 8192 on tiles are twice as wide, as every
workgroup reads all of x.
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS = (16, 32, 64, 128)
"""Heights of the tiles."""

_GAP = 8
WIDE = 8192
"""Rows of W from which on tiles are wide."""


@dataclass(frozen=True)
class Tile:
    """A workgroup's part of y, its depth along K, and how its subgroups divide both."""

    rows: int
    columns: int
    depth: int
    over_rows: int
    over_columns: int
    over_depth: int
    edge: int
    """Rows and columns of a matrix of the device's instructions."""

    @property
    def subgroups(self) -> int:
        return self.over_rows * self.over_columns * self.over_depth

    @property
    def high(self) -> int:
        """Fragments of a subgroup, down."""
        return self.rows // (self.over_rows * self.edge)

    @property
    def wide(self) -> int:
        """Fragments of a subgroup, across."""
        return self.columns // (self.over_columns * self.edge)

    @property
    def stride(self) -> int:
        return self.depth + _GAP


def tile_for(rows: int, n_out: int, edge: int) -> Tile:
    """The tile of that height, for matrices of `edge` rows and columns."""
    narrow = {
        16: (16, 32, 64, 1, 2, 4),
        32: (32, 32, 64, 1, 2, 4),
        64: (64, 32, 64, 2, 2, 2),
        128: (128, 64, 32, 4, 2, 1),
    }
    wide = {
        16: (16, 64, 64, 1, 2, 4),
        32: (32, 64, 64, 1, 2, 4),
        64: (64, 64, 64, 2, 2, 2),
        128: (128, 128, 32, 2, 4, 1),
    }
    return Tile(*(wide if n_out >= WIDE else narrow)[rows], edge)
