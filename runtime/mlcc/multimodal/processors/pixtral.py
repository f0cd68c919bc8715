"""Pixtral and Mistral 3: the image in its own ratio, a token of text after each line of its tokens.

Follows `PixtralImageProcessorPil` and `PixtralProcessor` of transformers.
"""

from __future__ import annotations

from math import floor

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.multimodal.processors.processor import ImagePlan, Processor, Size, TilePlan

BREAK, END = "[IMG_BREAK]", "[IMG_END]"
LOW_DETAIL_EDGE = 512
"""The longer side of an image in low detail, as OpenAI's models read it."""


class Pixtral(Processor):
    """One tile of whole groups of patches, with at most `longest_edge` pixels on a side."""

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        self.marks = (info.image_token, BREAK, END)

    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size."""
        most = self.info.longest_edge
        size = self._size(width, height, min(most, LOW_DETAIL_EDGE) if low_detail else most)
        between = self.info.image_token + BREAK
        text = between * (self.lines(size) - 1) + self.info.image_token + END
        return ImagePlan((), (TilePlan((0, 0, width, height), size),), text)

    def lines(self, size: Size) -> int:
        """The rows of its grid of tokens."""
        return size[1] // (self.info.patch_size * self.info.merge_size)

    @property
    def useful_size(self) -> ImageSize:
        """The longer side."""
        return {"longest_edge": self.info.longest_edge}

    def _size(self, width: int, height: int, most: int) -> Size:
        """The ratio of the image, up to whole groups of patches; no image is enlarged otherwise."""
        side = self.info.patch_size * self.info.merge_size
        ratio = max(height / most, width / most)
        if ratio > 1:
            width, height = max(1, floor(width / ratio)), max(1, floor(height / ratio))
        return -(-width // side) * side, -(-height // side) * side
