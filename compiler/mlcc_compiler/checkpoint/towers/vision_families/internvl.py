"""InternVL 3, as transformers has it."""

from __future__ import annotations

from typing import Any

from mlcc_compiler.checkpoint.towers.vision_families.family import (
    VISION_TOWER,
    Family,
    patch_layers,
)
from mlcc_compiler.models.fields import HfConfig, refuse
from mlcc_compiler.models.vision import clip


def _info(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    size, wanted = processor.get("size") or {}, config["image_size"]
    if any(side != wanted for side in size.values()):
        raise refuse("size", f"the tower's image_size, {wanted}", size)
    most = processor.get("max_patches", 12)
    if processor.get("min_patches", 1) != 1 or not isinstance(most, int) or not 1 <= most <= 64:
        raise refuse("max_patches", "1 to 64 tiles", most)
    # `crop_to_patches` of published files is false, and InternVLProcessor cuts all the same
    return {"processor": "internvl", "class_row": True, "split": most > 1, "max_tiles": most}


def _sides(outer: HfConfig, vision: HfConfig) -> dict[str, Any]:
    """`patch_layers`, and the sides of the image and of a patch, which are pairs."""
    found = patch_layers(outer, vision)
    for name in ("image_size", "patch_size"):
        side = vision[name]
        if isinstance(side, list | tuple):
            if len({*side}) != 1:
                raise refuse(name, "a square", side)
            found[name] = side[0]
    return found


def _merge_size(outer: HfConfig, vision: HfConfig) -> int:
    """Patches a side of a row of the prompt."""
    ratio = outer.get("downsample_ratio", 0.5)
    if ratio not in (1, 0.5, 0.25):
        raise refuse("downsample_ratio", "1, 0.5 or 0.25", ratio)
    return round(1 / ratio)


INTERNVL = Family(
    "clip_vision",
    clip.INTERNVL_DEFAULTS,
    VISION_TOWER,
    _merge_size,
    _info,
    renamed={
        "embeddings.patch_embeddings.projection.": "embeddings.patch_embedding.",
        "embeddings.position_embeddings": "embeddings.position_embedding.weight",
        "encoder.layer.": "encoder.layers.",
        ".attention.projection_layer.": ".self_attn.out_proj.",
        ".attention.": ".self_attn.",
        ".layernorm_before.": ".layer_norm1.",
        ".layernorm_after.": ".layer_norm2.",
    },
    scaled={"self_attn.out_proj.": "lambda_1", "mlp.fc2.": "lambda_2"},
    outer=_sides,
)
