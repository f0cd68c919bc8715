"""Gemma 3: the whole image as a square, and with pan and scan also crops of a long one.

Follows `Gemma3ImageProcessorPil` and `Gemma3Processor` of transformers.
"""

from __future__ import annotations

from math import ceil, floor

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.multimodal.processors.processor import Box, ImagePlan, Processor, TilePlan

BEGIN, END = "<start_of_image>", "<end_of_image>"
LEAST_CROP, LEAST_RATIO = 256, 1.2
"""Pan and scan: the least side of a crop in pixels, and the least ratio of the sides."""


class Gemma3(Processor):
    """With `split`: pan and scan, up to `max_tiles` crops."""

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        self.marks = (BEGIN, info.image_token, END)

    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size."""
        size = (self.info.image_size, self.info.image_size)
        cuts = self.info.split and not low_detail
        crops = _crops(width, height, self.info.max_tiles) if cuts else []
        tiles = tuple(TilePlan(box, size) for box in [(0, 0, width, height), *crops])
        one = f"\n\n{BEGIN}{self.info.image_token}{END}\n\n"
        if not crops:
            return ImagePlan((), tiles, one)
        text = f"Here is the original image {one} and here are some crops to help you see better "
        return ImagePlan((), tiles, text + " ".join([one] * len(crops)))

    @property
    def useful_size(self) -> ImageSize:
        """A square's side; crops of pan and scan are of at least half the shorter side."""
        side = self.info.image_size
        return {"shortest_edge": 2 * max(side, LEAST_CROP) if self.info.split else side}


def _crops(width: int, height: int, most: int) -> list[Box]:
    """Crops along the longer side; none of an image that is nearly square or too small."""
    longer, shorter = max(width, height), min(width, height)
    if longer / shorter < LEAST_RATIO:
        return []
    count = min(longer // LEAST_CROP, floor(longer / shorter + 0.5))
    count = min(most, max(2, count))
    side = ceil(longer / count)
    if min(side, shorter) < LEAST_CROP:
        return []
    spans = [(at * side, min((at + 1) * side, longer)) for at in range(count)]
    if width >= height:
        return [(first, 0, last, height) for first, last in spans]
    return [(0, first, width, last) for first, last in spans]
