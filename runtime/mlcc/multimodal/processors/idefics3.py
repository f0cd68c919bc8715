"""Idefics 3 and SmolVLM: the image in tiles of one size, row by row, and then as a whole.

Follows `Idefics3ImageProcessorPil` and `Idefics3Processor` of transformers.
"""

from __future__ import annotations

from math import ceil

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.multimodal.processors.processor import ImagePlan, Processor, Size, TilePlan

MOST_SIDE = 4096
"""The longest side before tiling, whatever the model says."""
AROUND, GLOBAL = "<fake_token_around_image>", "<global-img>"


class Idefics3(Processor):
    """With `split`: tiles, and the whole image behind them; else the whole image alone."""

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        most = ceil(min(info.longest_edge, MOST_SIDE) / info.image_size) if info.split else 0
        names = tuple(_name(row, column) for row in range(most) for column in range(most))
        self.marks = (info.image_token, AROUND, GLOBAL, *names)

    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size."""
        side = self.info.image_size
        first = _below(_of_length(width, height, self.info.longest_edge), MOST_SIDE)
        if low_detail or not self.info.split:
            tile = TilePlan((0, 0, *first), (side, side))
            return ImagePlan((first,), (tile,), self._whole)
        second = _in_tiles(first, side)
        columns, rows = second[0] // side, second[1] // side
        whole = TilePlan((0, 0, *second), (side, side))
        if rows == columns == 1:
            return ImagePlan((first, second), (whole,), self._whole)
        tiles = [_cut(row, column, side) for row in range(rows) for column in range(columns)]
        text = "".join(self._row(row, columns) for row in range(rows))
        return ImagePlan((first, second), (*tiles, whole), f"{text}\n{self._whole}")

    @property
    def useful_size(self) -> ImageSize:
        """The longer side before tiling."""
        return {"longest_edge": min(self.info.longest_edge, MOST_SIDE)}

    @property
    def _whole(self) -> str:
        return AROUND + GLOBAL + self.info.image_token + AROUND

    def _row(self, row: int, columns: int) -> str:
        image = self.info.image_token
        return "".join(AROUND + _name(row, column) + image for column in range(columns)) + "\n"


def _name(row: int, column: int) -> str:
    return f"<row_{row + 1}_col_{column + 1}>"


def _cut(row: int, column: int, side: int) -> TilePlan:
    left, upper = column * side, row * side
    return TilePlan((left, upper, left + side, upper + side), (side, side))


def _of_length(width: int, height: int, longest: int) -> Size:
    """The longer side becomes `longest`; the other one keeps the ratio and is even."""
    ratio = width / height
    if width >= height:
        other = int(longest / ratio)
        return longest, max(other + other % 2, 1)
    other = int(longest * ratio)
    return max(other + other % 2, 1), longest


def _below(size: Size, most: int) -> Size:
    """At most `most` pixels on the longer side."""
    width, height = size
    ratio = width / height
    if width >= height and width > most:
        width, height = most, int(most / ratio)
    elif height > width and height > most:
        width, height = int(most * ratio), most
    return max(width, 1), max(height, 1)


def _in_tiles(size: Size, side: int) -> Size:
    """Both sides become multiples of a tile's."""
    width, height = size
    ratio = width / height
    if width >= height:
        width = ceil(width / side) * side
        height = ceil(int(width / ratio) / side) * side
    else:
        height = ceil(height / side) * side
        width = ceil(int(height * ratio) / side) * side
    return width, height
