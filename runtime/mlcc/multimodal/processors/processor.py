"""What a processor decides about an image, from its size alone: the resizes, the tiles that the
tower reads, and the text that stands for them in the prompt.

A plan is numbers and text, so that the tab and phones can carry it out with a resize of their own.
The arithmetic is that of transformers' processors with the PIL backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from mlcc.api.openai.shapes import ImageSize
from mlcc.artifact.schema import VisionInfo
from mlcc.engine.request import RowPacking
from mlcc.errors import UnsupportedError
from mlcc.multimodal.rgb import RgbImage
from mlcc.util.fast_dataclass import fast_dataclass

if TYPE_CHECKING:
    from PIL.Image import Image

    Picture = Image | RgbImage

VERSION = 1
"""Raised when a processor gives other pixels: prefix caches must not mix both."""
RESAMPLES = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "torch-bilinear": 4}
"""Pillow's numbers of the filters, and PyTorch's bilinear one of bytes, which Pillow has not."""

Size = tuple[int, int]
"""Width and height in pixels."""
Box = tuple[int, int, int, int]
"""Left, upper, right and lower edge in pixels."""


@fast_dataclass(frozen=True)
class TilePlan:
    """A part of the image, and the size in which the tower reads it."""

    box: Box
    size: Size
    of_original: bool = False
    """Whether it is cut from the image before its resizes."""


@fast_dataclass(frozen=True)
class ImagePlan:
    """How an image of one size becomes tiles and text."""

    resizes: tuple[Size, ...]
    """Applied to the image one after another, before tiles are cut."""
    tiles: tuple[TilePlan, ...]
    text: str
    """Replaces the template's mark of the image; the image token once for each line of a tile."""
    fill: tuple[int, ...] = (0, 0, 0)
    """Colour of what a tile's box has beyond the image."""
    packing: RowPacking | None = None
    """All tiles are one tile of the prompt, whose rows are packed so."""


@fast_dataclass(frozen=True)
class Tile:
    """What the tower reads: see `mlcc.engine.request.ImageTile`."""

    rows: int
    key: bytes
    pixels: bytes
    height: int
    width: int
    lines: int = 1
    packing: RowPacking | None = None


class Processor(ABC):
    """One model's way from an image to tiles. Immutable; needs no Pillow to plan."""

    marks: tuple[str, ...]
    """The token that a chat template writes where an image is, and the others of
    `ImagePlan.text`, which only a processor writes."""

    alone = False
    """Whether images are in low detail as soon as a conversation has several of them."""

    def __init__(self, info: VisionInfo) -> None:
        self.info = info
        if info.resample not in RESAMPLES:
            raise UnsupportedError(
                f"the model's images are resized by {info.resample!r:.40}, which is not built; "
                f"built are {', '.join(RESAMPLES)}"
            )

    @abstractmethod
    def plan(self, width: int, height: int, low_detail: bool = False) -> ImagePlan:
        """The plan of an image of this size, in pixels; with low_detail one of few tokens: the
        whole image alone, or of fewer pixels. Raises InvalidRequestError for a size that the
        model cannot read."""

    @property
    @abstractmethod
    def useful_size(self) -> ImageSize:
        """The size up to which an image gains the model anything, by transformers' names."""

    def rows(self, size: Size) -> int:
        """The tokens that stand for a tile of this size."""
        side = self.info.patch_size * self.info.merge_size
        return (size[0] // side) * (size[1] // side)

    def lines(self, size: Size) -> int:
        """The runs of these tokens, between which the text has a token each."""
        return 1

    def tokens(self, plan: ImagePlan) -> int:
        """The image tokens of an image."""
        if plan.packing is not None:
            return self.rows(plan.tiles[0].size) + plan.packing.rows
        return sum(self.rows(tile.size) for tile in plan.tiles)

    def tiles(self, image: Picture, plan: ImagePlan) -> list[Tile]:
        """The tiles of an image in mode RGB, which the plan is of."""
        original = image
        for size in plan.resizes:
            image = self._resized(image, size)
        pixels = [
            self._pixels(original if tile.of_original else image, tile, plan.fill)
            for tile in plan.tiles
        ]
        return self.tiles_of(plan, pixels)

    def _pixels(self, image: Picture, tile: TilePlan, fill: tuple[int, ...]) -> bytes:
        part = image if tile.box == (0, 0, *image.size) else _crop(image, tile.box, fill)
        return self._resized(part, tile.size).tobytes()

    def tiles_of(self, plan: ImagePlan, pixels: Sequence[bytes]) -> list[Tile]:
        """The tiles of the prompt, from the pixels of those of the plan, uint8 RGB
        [height, width, 3]."""
        if plan.packing is not None:
            return [self._tile(plan.tiles[0].size, b"".join(pixels), plan.packing)]
        return [self._tile(tile.size, each) for tile, each in zip(plan.tiles, pixels, strict=True)]

    def _tile(self, size: Size, pixels: bytes, packing: RowPacking | None = None) -> Tile:
        width, height = size
        named = f"{self.info.processor}.{VERSION} {width}x{height} {packing or ''}".encode()
        key, rows = sha256(named + pixels).digest(), self.rows(size)
        rows += 0 if packing is None else packing.rows
        return Tile(rows, key, pixels, height, width, self.lines(size), packing)

    def _resized(self, image: Picture, size: Size) -> Picture:
        if image.size == size:
            return image
        if self.info.resample == "torch-bilinear" and not isinstance(image, RgbImage):
            image = RgbImage(*image.size, image.tobytes())
        return image.resize(size, RESAMPLES[self.info.resample])


def _crop(image: Picture, box: Box, fill: tuple[int, ...]) -> Picture:
    """A part of the image, and of the colour what is beyond it."""
    if isinstance(image, RgbImage):
        return image.crop(box, fill)
    from PIL.Image import new

    left, upper, right, lower = box
    if left >= 0 and upper >= 0 and right <= image.width and lower <= image.height:
        return image.crop(box)
    made = new("RGB", (right - left, lower - upper), fill[:3])
    made.paste(image, (-left, -upper))
    return made
