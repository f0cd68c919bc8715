"""LLaVA 1.5: the middle square of the image.

Follows `CLIPImageProcessorPil` and `LlavaProcessor` of transformers.
"""

from __future__ import annotations

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.multimodal.processors.processor import ImagePlan, Processor, TilePlan


class Llava(Processor):
    """The shorter side becomes the tower's, and the longer one is cut on both ends."""

    def __init__(self, info: VisionInfo) -> None:
        super().__init__(info)
        self.marks = (info.image_token,)

    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size."""
        side = self.info.image_size
        longer = int(side * max(width, height) / min(width, height))
        size = (side, longer) if width <= height else (longer, side)
        left, upper = (size[0] - side) // 2, (size[1] - side) // 2
        tile = TilePlan((left, upper, left + side, upper + side), (side, side))
        return ImagePlan((size,), (tile,), self.info.image_token)

    @property
    def useful_size(self) -> ImageSize:
        """The shorter side."""
        return {"shortest_edge": self.info.image_size}
