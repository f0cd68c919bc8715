"""Joins the rows of an image's tiles, as LLaVA-OneVision's `pack_image_features` in transformers:
the whole image first, then the tiles as one grid without its padding, line by line. A learned row
follows each line. Standard library only; a large grid is scaled down by the caller's function.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import replace

from mlcc.artifact.schema import VisionInfo
from mlcc.engine.request import ImageTile, RowPacking

ResizeRows = Callable[[bytes, int, int, int, int], bytes]
"""(rows, lines, columns, lines, columns) -> rows of that grid, bilinear."""


def resize_rows(rows: bytes, lines: int, columns: int, to_lines: int, to_columns: int) -> bytes:
    """By libmlcc_executor. Raises DeviceError where it was not built."""
    from mlcc.util import executor_library  # which a tab has not

    return bytes(executor_library.load().resize_rows(rows, lines, columns, to_lines, to_columns))


class ImageParts:
    """The tiles of one image, which the tower computes one after another."""

    def __init__(self, tile: ImageTile, info: VisionInfo, resize: ResizeRows = resize_rows) -> None:
        self._tile, self._info, self._resize = tile, info, resize
        self._found: list[bytes] = []

    def is_of(self, tile: ImageTile) -> bool:
        """Whether these are of that image."""
        return self._tile.key == tile.key

    @property
    def next_tile(self) -> ImageTile:
        """What to compute next."""
        tile = self._tile
        if tile.packing is None:
            return tile
        size, side = 3 * tile.height * tile.width, self._info.patch_size * self._info.merge_size
        begin, rows = len(self._found) * size, (tile.height // side) * (tile.width // side)
        return replace(tile, rows=rows, pixels=tile.pixels[begin : begin + size], packing=None)

    def add(self, rows: bytes) -> bytes | None:
        """The rows of `next_tile`; returns those of the image after the last one."""
        packing = self._tile.packing
        if packing is None:
            return rows
        self._found.append(rows)
        if len(self._found) < packing.tiles:
            return None
        side = self._tile.width // (self._info.patch_size * self._info.merge_size)
        return packed(self._found, packing, side, b64decode(self._info.newline), self._resize)


def packed(
    tiles: Sequence[bytes], packing: RowPacking, side: int, newline: bytes, resize: ResizeRows
) -> bytes:
    """The rows of an image. tiles: those of the whole image, and of each tile of the grid, row by
    row, f32[side * side, width]; newline: f32[width]."""
    whole, *grid = tiles
    if not grid:
        return whole + newline
    row = len(newline)
    lines = [
        b"".join(_line(grid, packing, side, y, row)) for y in range(packing.box[1], packing.box[3])
    ]
    columns = packing.box[2] - packing.box[0]
    if packing.size != (columns, len(lines)):
        made = resize(b"".join(lines), len(lines), columns, packing.size[1], packing.size[0])
        size = packing.size[0] * row
        lines = [made[at : at + size] for at in range(0, len(made), size)]
    return b"".join((whole, *(line + newline for line in lines)))


def _line(grid: Sequence[bytes], packing: RowPacking, side: int, y: int, row: int) -> list[bytes]:
    """Line `y` of the grid within the box, a piece of each tile."""
    left, right, found = packing.box[0], packing.box[2], []
    for column in range(packing.grid[0]):
        first, last = max(left, column * side), min(right, (column + 1) * side)
        if first < last:
            begin = (y % side * side + first - column * side) * row
            tile = grid[y // side * packing.grid[0] + column]
            found.append(tile[begin : begin + (last - first) * row])
    return found
