"""Llama 4."""

from __future__ import annotations

from typing import Any

from mlcc_compiler.checkpoint.towers.vision_families.family import Family
from mlcc_compiler.models.fields import HfConfig, refuse
from mlcc_compiler.models.vision import llama4

_MOST_TILES = 64
_BILINEAR = 2
"""Pillow's number."""


def _info(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    size, wanted = processor.get("size") or {}, config["image_size"]
    if any(side != wanted for side in size.values()):
        raise refuse("size", f"the tower's image_size, {wanted}", size)
    most = processor.get("max_patches", 16)
    if not isinstance(most, int) or not 1 <= most <= _MOST_TILES:
        raise refuse("max_patches", f"1 to {_MOST_TILES} tiles", most)
    if processor.get("resize_to_max_canvas", False):
        raise refuse("resize_to_max_canvas", "false", True)
    if processor.get("resample", _BILINEAR) != _BILINEAR:
        raise refuse("resample", f"{_BILINEAR}, bilinear", processor["resample"])
    return {
        "processor": "llama4",
        "class_row": True,
        "max_tiles": most,
        "bf16_pixels": True,
        "resample": "torch-bilinear",
    }


def _merge_size(outer: HfConfig, vision: HfConfig) -> int:
    """Patches a side of a row of the prompt."""
    if (ratio := vision["pixel_shuffle_ratio"]) != 0.5:
        raise refuse("pixel_shuffle_ratio", "0.5", ratio)
    return 2


LLAMA4 = Family(
    "llama4_vision",
    llama4.DEFAULTS,
    {
        f"{before}{theirs}": own
        for before in ("model.", "")
        for theirs, own in (
            ("vision_model.vision_adapter.mlp.", "adapter."),
            ("vision_model.patch_embedding.linear.", "embeddings.patch_embedding."),
            ("vision_model.positional_embedding_vlm", "embeddings.position_embedding.weight"),
            ("vision_model.class_embedding", "embeddings.class_embedding"),
            ("vision_model.model.", ""),
            ("vision_model.", ""),
            ("multi_modal_projector.", "projector."),
        )
    },
    _merge_size,
    _info,
    renamed={".o_proj.": ".out_proj."},
    channels_first=True,
)
