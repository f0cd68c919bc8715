"""Qwen2-VL to Qwen3-VL, and Qwen3.5: the image in its own ratio, in whole groups of patches.

Follows `Qwen2VLImageProcessorPil` and `Qwen2VLProcessor` of transformers.
"""

from __future__ import annotations

from math import ceil, floor, sqrt

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.errors import InvalidRequestError
from mlcc.multimodal.processors.processor import ImagePlan, Processor, Size, TilePlan

MOST_RATIO = 200
"""Of the sides of an image."""
LOW_DETAIL_PIXELS = 512 * 512
"""Most pixels of an image in low detail, as OpenAI's models read it."""


class Qwen2VL(Processor):
    """One tile, whose size keeps within `min_pixels` and `max_pixels`."""

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        self.marks = (info.image_token,)

    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size. Raises InvalidRequestError for one that is far
        longer than wide."""
        if max(width, height) / min(width, height) > MOST_RATIO:
            raise InvalidRequestError(
                f"an image of {width} x {height} pixels is too long for this model, whose "
                f"images are at most {MOST_RATIO} times as long as wide; cut it in parts",
                code="invalid_image",
            )
        most = self.info.max_pixels
        if low_detail:
            most = max(self.info.min_pixels, min(most, LOW_DETAIL_PIXELS))
        tile = TilePlan((0, 0, width, height), self._size(width, height, most))
        return ImagePlan((), (tile,), self.info.image_token)

    @property
    def useful_size(self) -> ImageSize:
        """An image keeps its ratio, and has few enough pixels."""
        return {"max_pixels": self.info.max_pixels}

    def _size(self, width: int, height: int, most: int) -> Size:
        """Multiples of a group of patches, with about the ratio of the image and `most` pixels
        at most."""
        info = self.info
        side = info.patch_size * info.merge_size
        made = (round(width / side) * side, round(height / side) * side)
        if made[0] * made[1] > most:
            shrink = sqrt(height * width / most)
            return _floored(width, shrink, side), _floored(height, shrink, side)
        if made[0] * made[1] < info.min_pixels:
            grow = sqrt(info.min_pixels / (height * width))
            return ceil(width * grow / side) * side, ceil(height * grow / side) * side
        return made


def _floored(length: int, shrink: float, side: int) -> int:
    return max(side, floor(length / shrink / side) * side)
