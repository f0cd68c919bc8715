"""Pixtral and Mistral 3."""

from __future__ import annotations

from math import isqrt
from typing import Any

from mlcc_compiler.checkpoint.towers.vision_families.family import (
    MOST_PATCHES,
    VISION_TOWER,
    Family,
    taken_layers,
)
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.vision import pixtral


def _info(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    """Its longest side, less if the tower had more than `MOST_PATCHES`."""
    size, merge = processor.get("size") or {}, config["merge_size"]
    side = require(config, "patch_size") * merge
    sides = {size.get(name) for name in ("longest_edge", "height", "width")} - {None}
    if len(sides) > 1:
        raise refuse("size", "one longest edge", size)
    given = require({"longest_edge": sides.pop() if sides else 1024}, "longest_edge")
    edge = min(given, isqrt(MOST_PATCHES) // merge * side)
    config["max_rows"] = (-(-edge // side)) ** 2
    return {"processor": "pixtral", "longest_edge": edge}


def _outer(outer: HfConfig, vision: HfConfig) -> dict[str, Any]:
    """`taken_layers`; the largest image is the processor's."""
    text, merges = outer.get("text_config") or {}, outer.get("model_type") == "mistral3"
    return {
        **taken_layers(outer, vision),
        "projector_bias": outer.get("multimodal_projector_bias", not merges),
        "projector_eps": text.get("rms_norm_eps", 1e-5),
        "merges": merges,
        "image_size": 0,
    }


def _merge_size(outer: HfConfig, vision: HfConfig) -> int:
    """Patches a side of a row of the prompt."""
    if outer.get("model_type") != "mistral3":
        return 1
    return require({"spatial_merge_size": 2, **outer}, "spatial_merge_size")


PIXTRAL = Family(
    "pixtral_vision",
    pixtral.DEFAULTS,
    VISION_TOWER,
    _merge_size,
    _info,
    renamed={"vision_model.patch_conv.": "vision_model.patch_embed.proj."},
    outer=_outer,
    unfolded="patch_merger.merging_layer.weight",
)
