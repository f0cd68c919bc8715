"""LLaVA-OneVision: the whole image as a square, and tiles of it in the grid that fits it best,
padded with black. Several images in a conversation are one padded square each.

Follows `LlavaOnevisionImageProcessorPil` and `LlavaOnevisionProcessor` of transformers.
"""

from __future__ import annotations

from math import ceil, sqrt

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.engine.request import RowPacking
from mlcc.multimodal.processors.processor import Box, ImagePlan, Processor, Size, TilePlan

LARGER = 1.1
"""A grid with more than this many times the sides of `max_tiles` tiles is scaled down to them."""


class LlavaOneVision(Processor):
    """All tiles are one tile of the prompt, whose rows are packed (`RowPacking`)."""

    alone = True

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        self.marks = (info.image_token,)
        self._side = info.image_size // (info.patch_size * info.merge_size)

    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size."""
        side, text = self.info.image_size, self.info.image_token
        if low_detail:
            square = TilePlan(_padded((width, height), 2 * (max(width, height),)), (side, side))
            grey = tuple(int(value * 255) for value in self.info.mean)
            return ImagePlan((), (square,), text, grey, RowPacking())
        wide, high = self._grid(width, height)
        scaled = _within((width, height), (wide, high))
        left, upper, _, _ = _padded(scaled, (wide, high))
        across, down = range(left, left + wide, side), range(upper, upper + high, side)
        tiles = [TilePlan((x, y, x + side, y + side), (side, side)) for y in down for x in across]
        whole = TilePlan((0, 0, width, height), (side, side), of_original=True)
        packing = self._packing((width, height), (wide // side, high // side))
        return ImagePlan((scaled,), (whole, *tiles), text, packing=packing)

    @property
    def useful_size(self) -> ImageSize:
        """The longer side of the largest grid."""
        return {"longest_edge": max(max(grid) for grid in self.info.grids)}

    def _grid(self, width: int, height: int) -> Size:
        """The grid, in pixels, in which most of the image is seen; of equals the smallest."""
        best, most, least = (0, 0), 0, float("inf")
        for wide, high in self.info.grids:
            scale = min(wide / width, high / height)
            seen = min(int(width * scale) * int(height * scale), width * height)
            wasted = wide * high - seen
            if seen > most or (seen == most and wasted < least):
                best, most, least = (wide, high), seen, wasted
        return best

    def _packing(self, size: Size, grid: Size) -> RowPacking:
        """Without the padding, in rows of the prompt, and then of about `max_tiles` tiles."""
        box = _unpadded(size, (grid[0] * self._side, grid[1] * self._side))
        columns, lines = box[2] - box[0], box[3] - box[1]
        ratio = sqrt(lines * columns / (self.info.max_tiles * self._side**2))
        if ratio > LARGER:
            columns, lines = int(columns // ratio), int(lines // ratio)
        return RowPacking(grid, box, (columns, lines))


def _within(size: Size, target: Size) -> Size:
    """The largest size of this ratio within the target."""
    across, down = target[0] / size[0], target[1] / size[1]
    if across < down:
        return target[0], min(ceil(size[1] * across), target[1])
    return min(ceil(size[0] * down), target[0]), target[1]


def _padded(size: Size, target: Size) -> Box:
    """The target around the middle of an image of this size."""
    left, upper = (size[0] - target[0]) // -2, (size[1] - target[1]) // -2
    return -left, -upper, target[0] - left, target[1] - upper


def _unpadded(size: Size, whole: Size) -> Box:
    """The part of a grid of rows that an image of this size covers, as `unpad_image`."""
    (width, height), (columns, lines) = size, whole
    if width / height > columns / lines:
        edge = (lines - int(round(height * (columns / width), 7))) // 2
        return 0, edge, columns, lines - edge
    edge = (columns - int(round(width * (lines / height), 7))) // 2
    return edge, 0, columns - edge, lines
