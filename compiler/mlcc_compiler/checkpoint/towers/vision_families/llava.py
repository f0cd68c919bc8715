"""LLaVA 1.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc_compiler.checkpoint.towers.vision_families.family import (
    VISION_TOWER,
    Family,
    patch_layers,
)
from mlcc_compiler.models.fields import HfConfig, refuse
from mlcc_compiler.models.vision import clip


def _info(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    size, crop = processor.get("size") or {}, processor.get("crop_size") or {}
    wanted = config["image_size"]
    shortest = size.get("shortest_edge") if isinstance(size, Mapping) else size
    sides = [shortest, *(crop.values() if isinstance(crop, Mapping) else [crop])]
    if any(side != wanted for side in sides) or not processor.get("do_center_crop", True):
        raise refuse("crop_size", f"the middle square of {wanted} pixels a side", crop)
    return {"processor": "llava", "class_row": True}


LLAVA = Family(
    "clip_vision",
    clip.DEFAULTS,
    VISION_TOWER,
    lambda outer, vision: 1,
    _info,
    outer=patch_layers,
)
