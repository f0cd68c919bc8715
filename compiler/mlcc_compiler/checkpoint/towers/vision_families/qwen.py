"""Qwen2-VL to Qwen3-VL, and Qwen3.5: images keep their ratio."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any

from mlcc_compiler.checkpoint.towers.vision_families.family import MOST_ROWS, Family
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.vision import qwen2_5_vl, qwen2_vl, qwen3_vl


def _info(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    size = processor.get("size") or {}
    side = require(config, "patch_size") * require(config, "merge_size")
    least = processor.get("min_pixels") or size.get("shortest_edge") or 4 * side * side
    most = processor.get("max_pixels") or size.get("longest_edge") or MOST_ROWS * side * side
    most = min(int(most), MOST_ROWS * side * side)
    config["max_rows"] = most // (side * side)
    window = require(config, "window_size") if "window_size" in config else 0
    pixels = {"min_pixels": int(least), "max_pixels": most}
    positions = _position_grid(config) if "num_position_embeddings" in config else 0
    sides = {"window_size": window, "position_grid": positions}
    return {"processor": "qwen2_vl", **sides, **pixels}


def _position_grid(config: dict[str, Any]) -> int:
    """Side of the square table of positions."""
    count = require(config, "num_position_embeddings")
    if isqrt(count) ** 2 != count:
        raise refuse("num_position_embeddings", "a square number", count)
    return isqrt(count)


def _family(tower: str, defaults: Mapping[str, Any]) -> Family:
    return Family(
        tower,
        defaults,
        {"model.visual.": "", "visual.": ""},
        lambda outer, vision: require(vision, "spatial_merge_size"),
        _info,
    )


QWEN2_VL = _family("qwen2_vl_vision", qwen2_vl.DEFAULTS)
QWEN2_5_VL = _family("qwen2_5_vl_vision", qwen2_5_vl.DEFAULTS)
QWEN3_VL = _family("qwen3_vl_vision", qwen3_vl.DEFAULTS)
QWEN3_5 = _family("qwen3_vl_vision", {**qwen3_vl.DEFAULTS, "deepstack_visual_indexes": []})
