"""Gemma 4: images keep their ratio, and have about as many tokens each."""

from __future__ import annotations

from typing import Any

from mlcc_compiler.checkpoint.towers.vision_families.family import MOST_ROWS, VISION_TOWER, Family
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.vision import gemma4

_SIZES = {"max_soft_tokens": 280, "patch_size": 16, "pooling_kernel_size": 3}
"""Of the image processor, whose files name only others."""
_HALF = (0.5, 0.5, 0.5)
"""Pixels are 0 to 1 for the tower, which takes them to -1 to 1."""


def _info(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    given = {**_SIZES, **processor}
    patch, merge = require(config, "patch_size"), require(config, "merge_size")
    for name, wanted in (("patch_size", patch), ("pooling_kernel_size", merge)):
        if given[name] != wanted:
            raise refuse(name, f"the tower's, {wanted}", given[name])
    for name, plain in (("do_normalize", False), ("do_resize", True), ("do_rescale", True)):
        if given.get(name, plain) is not plain:
            raise refuse(name, str(plain).lower(), given[name])
    rows, positions = require(given, "max_soft_tokens"), require(config, "position_embedding_size")
    if rows > MOST_ROWS or rows * merge > positions:
        most = min(MOST_ROWS, positions // merge)
        raise refuse("max_soft_tokens", f"at most {most}", rows)
    config |= {"max_rows": rows, "position_axes": rows * merge}
    return {
        "processor": "gemma4",
        "max_pixels": rows * (merge * patch) ** 2,
        "position_axes": rows * merge,
        "mean": _HALF,
        "std": _HALF,
    }


GEMMA4 = Family(
    "gemma4_vision",
    gemma4.DEFAULTS,
    {
        **VISION_TOWER,
        "model.embed_vision.": "embed_vision.",
        "embed_vision.": "embed_vision.",
    },
    lambda outer, vision: require(vision, "pooling_kernel_size"),
    _info,
    renamed={
        "patch_embedder.input_proj.": "patch_embed.proj.",
        "patch_embedder.position_embedding_table": "pos_embed.position_table",
        ".linear.": ".",
    },
    outer=lambda outer, vision: {"image_size": 0},
    halves=("q_proj.weight", "k_proj.weight", "q_norm.weight", "k_norm.weight"),
)
