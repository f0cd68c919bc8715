"""Images that the program around mlcc decoded: parts and sizes of them are those of Pillow."""

from __future__ import annotations

import random

import pytest
from PIL import Image
from PIL.Image import Resampling

from mlcc.artifact.schema import VisionInfo
from mlcc.multimodal.processors.processor import RESAMPLES
from mlcc.multimodal.processors.registry import processor_of
from mlcc.multimodal.rgb import RgbImage
from tests.runtime.multimodal.helpers.pictures import idefics3, llava_onevision, noise, qwen2_vl


def test_the_numbers_of_filters_are_pillows() -> None:
    own = {name: number for name, number in RESAMPLES.items() if name != "torch-bilinear"}
    assert {name: Resampling[name.upper()].value for name in own} == own
    assert len(own) == 4


def test_parts_equal_pillows() -> None:
    rng, image = random.Random(0), noise(23, 17)
    ours = RgbImage(*image.size, image.tobytes())
    for _ in range(200):
        left, upper = rng.randint(-30, 30), rng.randint(-30, 30)
        box = (left, upper, left + rng.randint(1, 40), upper + rng.randint(1, 40))
        fill = tuple(rng.choice([(0, 0, 0), (9, 8, 7)]))
        wanted = Image.new("RGB", (box[2] - left, box[3] - upper), fill)
        wanted.paste(image, (-left, -upper))
        assert ours.crop(box, fill).tobytes() == wanted.tobytes(), (box, fill)


@pytest.mark.parametrize(
    "info", [idefics3(), llava_onevision(), qwen2_vl()], ids=lambda i: i.processor
)
@pytest.mark.parametrize("low_detail", [False, True])
def test_tiles_and_their_keys_equal_pillows(info: VisionInfo, low_detail: bool) -> None:
    processor = processor_of(info)
    for width, height in ((61, 150), (200, 90), (56, 56)):
        image = noise(width, height)
        plan = processor.plan(width, height, low_detail=low_detail)
        ours = processor.tiles(RgbImage(width, height, image.tobytes()), plan)
        assert ours == processor.tiles(image, plan)
