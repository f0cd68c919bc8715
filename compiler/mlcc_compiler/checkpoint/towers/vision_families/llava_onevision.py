"""LLaVA-OneVision: several tiles of an image, whose rows are packed."""

from __future__ import annotations

import re
from typing import Any

from mlcc_compiler.checkpoint.towers.vision_families.family import (
    VISION_TOWER,
    Family,
    taken_layers,
)
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.vision import clip
from mlcc_compiler.models.vision.tower import patches_per_side

_DEFAULT_SIDE, _MOST_SIDE = 384, 6
"""Grids of a config that names none: up to 6 x 6 tiles."""
_MOST = re.compile(r"anyres_max_([1-9][0-9]?)")


def _info(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    """The grids, as widths and heights, in the order in which the best one is searched."""
    size, wanted, grids = processor.get("size") or {}, config["image_size"], config["grids"]
    if any(side != wanted for side in size.values()):
        raise refuse("size", f"the tower's image_size, {wanted}", size)
    own = processor.get("image_grid_pinpoints", grids)
    if [*map(list, own)] != [*map(list, grids)]:
        raise refuse("image_grid_pinpoints", "those of config.json", own)
    side, most = patches_per_side(config), config["most_tiles"]
    config["prompt_rows"] = side**2 + max(
        min(side**2 * high * wide, int(1.21 * most * side**2)) + side * high
        for high, wide in ((h // wanted, w // wanted) for h, w in grids)
    )
    return {
        "processor": "llava_onevision",
        "grids": tuple((width, height) for height, width in grids),
        "max_tiles": most,
    }


def _outer(outer: HfConfig, vision: HfConfig) -> dict[str, Any]:
    """`taken_layers`, the grids of tiles, and the tiles whose rows a larger grid is scaled to."""
    strategy = outer.get("vision_feature_select_strategy", "full")
    if strategy != "full":  # a tower without a class token
        raise refuse("vision_feature_select_strategy", "full", strategy)
    ratio = outer.get("vision_aspect_ratio", "anyres_max_9")
    if (found := _MOST.fullmatch(str(ratio))) is None:
        raise refuse("vision_aspect_ratio", "anyres_max_ and a number of tiles", ratio)
    side = require(vision, "image_size")
    grids = outer.get("image_grid_pinpoints") or _grids()
    if not all(len(grid) == 2 and all(a > 0 and a % side == 0 for a in grid) for grid in grids):
        raise refuse("image_grid_pinpoints", f"pairs of multiples of {side}", grids)
    return {**taken_layers(outer, vision), "grids": grids, "most_tiles": int(found[1])}


def _grids() -> list[list[int]]:
    sides = [_DEFAULT_SIDE * count for count in range(1, _MOST_SIDE + 1)]
    return [[height, width] for height in sides for width in sides]


LLAVA_ONEVISION = Family(
    "clip_vision",
    clip.SIGLIP_DEFAULTS,
    VISION_TOWER,
    lambda outer, vision: 1,
    _info,
    newline="image_newline",
    outer=_outer,
)
