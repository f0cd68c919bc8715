"""Gemma 3."""

from __future__ import annotations

from math import isqrt
from typing import Any

from mlcc_compiler.checkpoint.towers.vision_families.family import VISION_TOWER, Family
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.vision import gemma3


def _merge_size(outer: HfConfig, vision: HfConfig) -> int:
    """Patches a side of a token: the image's tokens form a square."""
    tokens = require({"mm_tokens_per_image": 256, **outer}, "mm_tokens_per_image")
    side = require(vision, "image_size") // require(vision, "patch_size")
    per_side = isqrt(tokens)
    if per_side**2 != tokens or side % per_side:
        raise refuse("mm_tokens_per_image", f"a square that divides {side} x {side}", tokens)
    return side // per_side


def _info(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    pans = bool(processor.get("do_pan_and_scan"))
    most = processor.get("pan_and_scan_max_num_crops") or 4
    return {"processor": "gemma3", "split": pans, "max_tiles": most if pans else 0}


GEMMA3 = Family(
    "gemma3_vision",
    gemma3.DEFAULTS,
    VISION_TOWER,
    _merge_size,
    _info,
    {"mm_input_projection_weight": "mm_input_projection.weight"},
)
