"""Images for tests, encoded, and the records of models that see."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

from mlcc.artifact.schema import VisionInfo
from mlcc.multimodal.header import EncodedImage

HALF = (0.5, 0.5, 0.5)


def idefics3(**more: Any) -> VisionInfo:
    """Tiles of 32 pixels, of 4 rows each."""
    fields = {
        "processor": "idefics3", "image_token": "<image>", "image_token_id": 5, "patch_size": 8,
        "merge_size": 2, "image_size": 32, "mean": HALF, "std": HALF, "resample": "lanczos",
        "longest_edge": 128, "split": True,
    }  # fmt: skip
    return VisionInfo(**{**fields, **more})


def gemma3(**more: Any) -> VisionInfo:
    """One square of 56 pixels, of 4 rows; pan and scan if asked for."""
    fields = {
        "processor": "gemma3", "image_token": "<image_soft_token>", "image_token_id": 5,
        "patch_size": 14, "merge_size": 2, "image_size": 56, "mean": HALF, "std": HALF,
        "resample": "bilinear",
    }  # fmt: skip
    return VisionInfo(**{**fields, **more})


def gemma4(**more: Any) -> VisionInfo:
    """Any size in multiples of 12 pixels, which are a row each, up to 70 rows."""
    fields = {
        "processor": "gemma4", "image_token": "<|image|>", "image_token_id": 5, "patch_size": 4,
        "merge_size": 3, "image_size": 0, "mean": HALF, "std": HALF, "resample": "bicubic",
        "max_pixels": 70 * 12 * 12, "position_axes": 210,
    }  # fmt: skip
    return VisionInfo(**{**fields, **more})


def llava(**more: Any) -> VisionInfo:
    """The middle square of 56 pixels a side, of 16 rows, and a class token."""
    fields = {
        "processor": "llava", "image_token": "<image>", "image_token_id": 5, "patch_size": 14,
        "merge_size": 1, "image_size": 56, "mean": HALF, "std": HALF, "resample": "bicubic",
        "class_row": True,
    }  # fmt: skip
    return VisionInfo(**{**fields, **more})


def llava_onevision(**more: Any) -> VisionInfo:
    """Grids of up to 3 x 4 tiles of 56 pixels a side, of 16 rows each."""
    grids = tuple((56 * wide, 56 * high) for high in range(1, 4) for wide in range(1, 5))
    fields = {
        "processor": "llava_onevision", "image_token": "<image>", "image_token_id": 5,
        "patch_size": 14, "merge_size": 1, "image_size": 56, "mean": (0.48, 0.46, 0.41),
        "std": HALF, "resample": "bicubic", "grids": grids, "max_tiles": 3,
    }  # fmt: skip
    return VisionInfo(**{**fields, **more})


def internvl(**more: Any) -> VisionInfo:
    """Squares of 56 pixels a side, of 4 rows each, and a class token."""
    fields = {
        "processor": "internvl", "image_token": "<IMG_CONTEXT>", "image_token_id": 5,
        "patch_size": 14, "merge_size": 2, "image_size": 56, "mean": HALF, "std": HALF,
        "resample": "bicubic", "class_row": True, "split": True, "max_tiles": 12,
    }  # fmt: skip
    return VisionInfo(**{**fields, **more})


def llama4(**more: Any) -> VisionInfo:
    """Squares of 56 pixels a side, of 4 rows each, and a class token."""
    fields = {
        "processor": "llama4", "image_token": "<|patch|>", "image_token_id": 5, "patch_size": 14,
        "merge_size": 2, "image_size": 56, "mean": HALF, "std": HALF,
        "resample": "torch-bilinear", "class_row": True, "bf16_pixels": True, "max_tiles": 16,
    }  # fmt: skip
    return VisionInfo(**{**fields, **more})


def pixtral(**more: Any) -> VisionInfo:
    """Any size up to 168 pixels, in multiples of 28, which are a row each."""
    fields = {
        "processor": "pixtral", "image_token": "[IMG]", "image_token_id": 5, "patch_size": 14,
        "merge_size": 2, "image_size": 0, "mean": HALF, "std": HALF, "resample": "bicubic",
        "longest_edge": 168,
    }  # fmt: skip
    return VisionInfo(**{**fields, **more})


def qwen2_vl(**more: Any) -> VisionInfo:
    """Any size in multiples of 28 pixels."""
    fields = {
        "processor": "qwen2_vl", "image_token": "<|image_pad|>", "image_token_id": 5,
        "patch_size": 14, "merge_size": 2, "image_size": 0, "mean": HALF, "std": HALF,
        "resample": "bicubic", "min_pixels": 56 * 56, "max_pixels": 28 * 28 * 40,
    }  # fmt: skip
    return VisionInfo(**{**fields, **more})


def noise(width: int, height: int, seed: int = 0, channels: int = 3) -> Image.Image:
    """Random pixels, the same for a seed."""
    shape = (height, width) if channels == 1 else (height, width, channels)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def encoded(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    """A file's bytes."""
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def given(data: bytes, field: str = "image") -> EncodedImage:
    """As a request has it."""
    return EncodedImage(data, field)
