"""Llama 4: the image in up to `max_tiles` squares, row by row, padded with black at the right and
below, and then as a whole. Of one square there is no whole.

Follows `Llama4ImageProcessor` and `Llama4Processor` of transformers. The former exists for torch
alone, so the resize is torch's.
"""

from __future__ import annotations

from math import floor
from struct import pack, unpack

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.multimodal.processors.processor import ImagePlan, Processor, Size, TilePlan

BEGIN, WHOLE, END = "<|image_start|>", "<|image|>", "<|image_end|>"
"""WHOLE is before the whole image, and what a chat template writes for one."""
BESIDE, BELOW = "<|tile_x_separator|>", "<|tile_y_separator|>"


class Llama4(Processor):
    """Tiles in the canvas that enlarges the image least, or shrinks it least."""

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        self.marks = (WHOLE, info.image_token, BEGIN, END, BESIDE, BELOW)

    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size."""
        side = self.info.image_size
        columns, rows = (1, 1) if low_detail else self._grid(width, height)
        # enlarged to a square's side at most
        most = min(max(width, side), columns * side), min(max(height, side), rows * side)
        places = [(x * side, y * side) for y in range(rows) for x in range(columns)]
        tiles = [TilePlan((x, y, x + side, y + side), (side, side)) for x, y in places]
        if len(tiles) > 1:
            tiles.append(TilePlan((0, 0, width, height), (side, side), of_original=True))
        return ImagePlan((_within((width, height), most),), tuple(tiles), self._text(columns, rows))

    @property
    def useful_size(self) -> ImageSize:
        """The longest canvas."""
        return {"longest_edge": self.info.image_size * self.info.max_tiles}

    def _text(self, columns: int, rows: int) -> str:
        token = self.info.image_token
        tiles = (BESIDE.join([token] * columns) + BELOW) * rows if columns * rows > 1 else ""
        return BEGIN + tiles + WHOLE + token + END

    def _grid(self, width: int, height: int) -> Size:
        """Columns and rows of tiles. Scales are compared in float32, as torch has them; of equal
        ones the smallest canvas is taken."""
        side, found = self.info.image_size, list[tuple[float, Size]]()
        for columns, rows in _grids(self.info.max_tiles):
            across, down = _float32(columns * side / width), _float32(rows * side / height)
            found.append((min(across, down), (columns, rows)))
        scales = [scale for scale, _ in found]
        best = min((scale for scale in scales if scale >= 1), default=max(scales))
        return min((grid for scale, grid in found if scale == best), key=lambda g: g[0] * g[1])


def _grids(most: int) -> list[Size]:
    """Columns and rows of all canvases of up to `most` tiles, in the order of transformers: the
    largest first, but those of a ratio behind its first."""
    by_ratio: dict[float, list[Size]] = {}
    for count in range(most, 0, -1):
        for rows in (rows for rows in range(1, count + 1) if count % rows == 0):
            by_ratio.setdefault(rows / (count // rows), []).append((count // rows, rows))
    return [grid for grids in by_ratio.values() for grid in grids]


def _within(size: Size, target: Size) -> Size:
    """The largest size of this ratio within the target."""
    across, down = target[0] / size[0], target[1] / size[1]
    if across < down:
        return target[0], max(1, min(floor(size[1] * across), target[1]))
    return max(1, min(floor(size[0] * down), target[0])), target[1]


def _float32(value: float) -> float:
    found: float = unpack("<f", pack("<f", value))[0]
    return found
