"""InternVL 3: the image in up to `max_tiles` squares, row by row, and then as a whole.

Follows `GotOcr2ImageProcessorPil` and `InternVLProcessor` of transformers.
"""

from __future__ import annotations

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.multimodal.processors.processor import ImagePlan, Processor, Size, TilePlan

BEGIN, END = "<img>", "</img>"
LONG = 12
"""Ratio of the sides of an image up to which its shorter side is not enlarged."""


class InternVL(Processor):
    """With `split`: tiles in the grid whose ratio is nearest to the image's."""

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        self.marks = (info.image_token, BEGIN, END)

    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size."""
        side = self.info.image_size
        whole = TilePlan((0, 0, width, height), (side, side), of_original=True)
        cuts = self.info.split and not low_detail
        columns, rows = self._grid(width, height) if cuts else (1, 1)
        if rows == columns == 1:
            return ImagePlan((), (whole,), BEGIN + self.info.image_token + END)
        places = [(x * side, y * side) for y in range(rows) for x in range(columns)]
        tiles = [TilePlan((x, y, x + side, y + side), (side, side)) for x, y in places]
        text = BEGIN + self.info.image_token * (len(tiles) + 1) + END
        return ImagePlan(((columns * side, rows * side),), (*tiles, whole), text)

    @property
    def useful_size(self) -> ImageSize:
        """The area of all tiles; of many even without tiles, as the image may be long."""
        return {"max_pixels": self.info.image_size**2 * max(self.info.max_tiles, LONG)}

    def _grid(self, width: int, height: int) -> Size:
        """Columns and rows of tiles; of grids with the same ratio the largest of less than twice
        the image's area."""
        most, area = self.info.max_tiles, width * height
        best, least = (1, 1), float("inf")
        for columns, rows in _grids(most):
            difference = abs(width / height - columns / rows)
            covered = 0.5 * self.info.image_size**2 * columns * rows
            if difference < least or (difference == least and area > covered):
                best, least = (columns, rows), difference
        return best


def _grids(most: int) -> list[Size]:
    """All grids of up to `most` tiles, the smallest first, in the order of transformers."""
    sides = range(1, most + 1)
    found = [(x, y) for x in sides for y in sides if x * y <= most]
    return sorted(found, key=lambda grid: grid[0] * grid[1])
