"""Images for the small checkpoints of `checkpoints.py`, as transformers' models and the engine take
them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)

from mlcc.artifact.schema import VisionInfo
from mlcc.engine.request import ImageTile
from mlcc.multimodal.processors.processor import Processor, Tile
from mlcc.multimodal.processors.registry import processor_of
from tests.compiler.vision.checkpoints import (
    ANY_SIZE,
    BREAK,
    END,
    GRIDS,
    IMAGE,
    IN_LINES,
    MEAN,
    MERGE,
    MOST_TILES,
    ODD_SIDE,
    OF_AREA,
    PATCH,
    ROWS,
    SIDE,
    STD,
)


@cache
def _onevision_processor() -> Processor:
    """mlcc's, which makes the tiles that the model is asked about."""
    info = VisionInfo(
        processor="llava_onevision",
        image_token="<image>",
        image_token_id=IMAGE,
        patch_size=PATCH * MERGE,
        merge_size=1,
        image_size=SIDE,
        mean=tuple(MEAN),
        std=tuple(STD),
        resample="lanczos",
        max_tiles=MOST_TILES,
        grids=tuple((width, height) for height, width in GRIDS),
    )
    return processor_of(info)


def _onevision_tile(picture: np.ndarray[Any, Any]) -> Tile:
    processor, image = _onevision_processor(), Image.fromarray(picture)
    (made,) = processor.tiles(image, processor.plan(*image.size))
    return made


def _onevision_given(shown: Sequence[Any]) -> dict[str, Any]:
    """Images as transformers' own processor makes them, each as if it were alone."""
    processor = LlavaOnevisionImageProcessorPil(
        size={"height": SIDE, "width": SIDE},
        image_grid_pinpoints=GRIDS,
        image_mean=MEAN,
        image_std=STD,
        resample=1,
    )
    made = processor(images=[Image.fromarray(picture) for picture in shown], return_tensors="pt")
    return {"pixel_values": made["pixel_values"].double(), "image_sizes": made["image_sizes"]}


def given(family: str, ids: torch.Tensor, shown: Sequence[Any]) -> dict[str, Any]:
    """Arguments of transformers' model beside the ids of a prompt."""
    if family in ANY_SIZE:
        types = {"mm_token_type_ids": (ids == IMAGE).int()}
        return types | (_patches(shown) if shown else {})
    if family == "gemma3":
        types = {"token_type_ids": (ids == IMAGE).long()}
        return types | ({"pixel_values": pixel_values(np.stack(shown))} if shown else {})
    if family in OF_AREA:
        types = {"mm_token_type_ids": (ids == IMAGE).int()}
        return types | (_rastered(shown) if shown else {})
    if family == "llava_onevision":
        return _onevision_given(shown) if shown else {}
    if family in IN_LINES and shown:
        return _padded(shown)
    if family == "llama4":
        return {"pixel_values": _in_bf16(np.stack(shown))} if shown else {}
    if family in ("llava", "internvl", *IN_LINES):
        return {"pixel_values": pixel_values(np.stack(shown))} if shown else {}
    return {"pixel_values": pixel_values(np.stack(shown))[None]} if shown else {}


def _padded(shown: Sequence[Any]) -> dict[str, Any]:
    """Images as PixtralImageProcessor makes them: side by side, each with its own size."""
    sizes = [picture.shape[:2] for picture in shown]
    pixels = torch.zeros(len(shown), 3, *(max(sides) for sides in zip(*sizes, strict=True)))
    pixels = pixels.double()
    for i, (picture, (height, width)) in enumerate(zip(shown, sizes, strict=True)):
        pixels[i, :, :height, :width] = pixel_values(picture[None])[0]
    return {"pixel_values": pixels, "image_sizes": torch.tensor(sizes)}


def _rastered(shown: Sequence[Any]) -> dict[str, Any]:
    """Patches as Gemma4ImageProcessor makes them: row by row, each with its column and row. All
    images here have as many."""
    rows, places = [], []
    for picture in shown:
        height, width = (size // PATCH for size in picture.shape[:2])
        patches = (picture / 255.0).reshape(height, PATCH, width, PATCH, 3).transpose(0, 2, 1, 3, 4)
        rows.append(patches.reshape(height * width, -1))
        places.append(np.stack(np.mgrid[:height, :width][::-1], -1).reshape(-1, 2))
    return {
        "pixel_values": torch.tensor(np.stack(rows)),
        "image_position_ids": torch.tensor(np.stack(places)),
    }


def _patches(shown: Sequence[Any]) -> dict[str, Any]:
    """Patches as Qwen2VLImageProcessor makes them: two frames of each, in the order of blocks."""
    rows, grids = [], []
    for picture in shown:
        values = pixel_values(picture[None])[0].numpy()
        height, width = (size // PATCH for size in values.shape[1:])
        blocks = values.reshape(
            3, height // MERGE, MERGE, PATCH, width // MERGE, MERGE, PATCH
        ).transpose(1, 4, 2, 5, 0, 3, 6)
        frames = np.repeat(blocks[:, :, :, :, :, None], 2, axis=5)
        rows.append(frames.reshape(height * width, -1))
        grids.append([1, height, width])
    return {
        "pixel_values": torch.tensor(np.concatenate(rows)),
        "image_grid_thw": torch.tensor(grids),
    }


def pictures(family: str) -> list[np.ndarray[Any, Any]]:
    """Three of uint8 [height, width, 3], of the family's sizes."""
    side = ODD_SIDE if family == "smolvlm-odd" else SIDE
    sizes = [(side, side)] * 3
    if family in (*ANY_SIZE, *IN_LINES, *OF_AREA):
        sizes = [(SIDE, SIDE), (SIDE // 2, 2 * SIDE), (2 * SIDE, SIDE // 2)]
    if family == "llava_onevision":  # one tile; two, with padding; six, scaled down
        sizes = [(SIDE // 2, SIDE), (SIDE, 2 * SIDE - 20), (3 * SIDE, 2 * SIDE - 2)]
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (*size, 3), np.uint8) for size in sizes]


def tile(picture: np.ndarray[Any, Any], start: int, family: str = "") -> ImageTile:
    """An image that stands for ROWS tokens from `start` on."""
    if family == "llava_onevision":
        made = _onevision_tile(picture)
        side, packing = SIDE, made.packing
        return ImageTile(start, made.rows, made.key, made.pixels, side, side, 1, packing)
    pixels = picture.tobytes()
    lines = len(picture) // (PATCH * MERGE) if family in IN_LINES else 1
    return ImageTile(start, ROWS, pixels[:32], pixels, *picture.shape[:2], lines)


def tokens_of(picture: np.ndarray[Any, Any], family: str) -> list[int]:
    """What stands for an image in a prompt."""
    if family == "llava_onevision":
        return [IMAGE] * _onevision_tile(picture).rows
    if family not in IN_LINES:
        return [IMAGE] * ROWS
    lines = len(picture) // (PATCH * MERGE)
    found = ([IMAGE] * (ROWS // lines) + [BREAK]) * lines
    found[-1] = END
    return found


def _in_bf16(found: np.ndarray[Any, Any]) -> torch.Tensor:
    """As `pixel_values`, by the steps of Llama4ImageProcessor: each in bfloat16."""
    channels = torch.tensor(found.transpose(0, 3, 1, 2)).to(torch.bfloat16)
    mean, std = (torch.tensor(of, dtype=torch.bfloat16)[:, None, None] for of in (MEAN, STD))
    return ((channels * (1 / 255) - mean) / std).double()


def pixel_values(found: np.ndarray[Any, Any]) -> torch.Tensor:
    """f64 [count, 3, SIDE, SIDE], as the image processor normalises pixels."""
    scaled = (found / 255.0 - MEAN) / STD
    return torch.tensor(scaled.transpose(0, 3, 1, 2))
