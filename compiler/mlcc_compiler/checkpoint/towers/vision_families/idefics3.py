"""Idefics 3 and SmolVLM."""

from __future__ import annotations

from typing import Any

from mlcc_compiler.checkpoint.towers.vision_families.family import Family
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.vision import idefics3


def _info(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    size, most = processor.get("size") or {}, processor.get("max_image_size") or {}
    tile = most.get("longest_edge", config["image_size"])
    if tile != config["image_size"]:
        raise refuse("max_image_size", f"the tower's image_size, {config['image_size']}", tile)
    return {
        "processor": "idefics3",
        "longest_edge": require({"longest_edge": 1820, **size}, "longest_edge"),
        "split": bool(processor.get("do_image_splitting", True)),
    }


IDEFICS3 = Family(
    "idefics3_vision",
    idefics3.DEFAULTS,
    {"model.vision_model.": "vision_model.", "model.connector.": "connector."},
    lambda outer, vision: require({"scale_factor": 2, **outer}, "scale_factor"),
    _info,
)
