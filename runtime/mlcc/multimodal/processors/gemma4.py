"""Gemma 4: the image in its own ratio, scaled up or down to as many tokens as the model reads.

Follows `Gemma4ImageProcessorPil` and `Gemma4Processor` of transformers.
"""

from __future__ import annotations

from math import floor, sqrt

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.multimodal.processors.processor import ImagePlan, Processor, Size, TilePlan

BEGIN, END = "<|image>", "<image|>"
LOW_DETAIL_TOKENS = 70
"""Most tokens of an image in low detail: the fewest that the models were trained with."""


class Gemma4(Processor):
    """One tile of whole groups of patches, with at most `max_pixels`."""

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        self.marks = (info.image_token, BEGIN, END)
        self._side = info.patch_size * info.merge_size

    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size."""
        most, low = self.info.max_pixels, LOW_DETAIL_TOKENS * self._side**2
        tile = TilePlan(
            (0, 0, width, height), self._size(width, height, min(most, low) if low_detail else most)
        )
        return ImagePlan((), (tile,), BEGIN + self.info.image_token + END)

    @property
    def useful_size(self) -> ImageSize:
        """An image keeps its ratio, and has few enough pixels."""
        return {"max_pixels": self.info.max_pixels}

    def _size(self, width: int, height: int, area: int) -> Size:
        """The largest size of the image's ratio within the area, down to whole groups; a line of
        them of an image that is too long for its ratio."""
        side = self._side
        factor = sqrt(area / (height * width))
        down, across = floor(factor * height / side), floor(factor * width / side)
        longest = area // side**2
        if down == 0:
            return min(width // height, longest) * side, side
        if across == 0:
            return side, min(height // width, longest) * side
        return across * side, down * side
