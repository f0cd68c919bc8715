"""The vision tower of a multimodal checkpoint: a checkpoint of its own, and how images are prepared
for it.

A family is a row of `FAMILIES`. Reads config.json and preprocessor_config.json (or, of newer
checkpoints, processor_config.json); opens no tensor.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

from mlcc.artifact.schema import VisionInfo
from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import PREPROCESSOR, Checkpoint
from mlcc_compiler.checkpoint.tokenizer_files import token_ids
from mlcc_compiler.checkpoint.tower import TowerCheckpoint
from mlcc_compiler.checkpoint.tower_tensors import TowerTensors
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.vision import (
    clip,
    gemma3,
    idefics3,
    pixtral,
    qwen2_5_vl,
    qwen2_vl,
    qwen3_vl,
)
from mlcc_compiler.models.vision.tower import patches_per_side

_OF_TOWER = re.compile(r"(model\.)?(vision|visual|vpm|image)")
"""Beginnings of the names of a tower's tensors, of all families."""
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of its filters."""


@dataclass(frozen=True)
class Family:
    """How a multimodal checkpoint holds its tower."""

    tower: str
    """`model_type` of the tower, in the registry of architectures."""
    defaults: Mapping[str, Any]
    """Of vision_config's fields."""
    prefixes: Mapping[str, str]
    """Prefix of a tensor in the checkpoint -> in the tower; the first that fits."""
    merge_size: Callable[[HfConfig, HfConfig], int]
    """(config.json, vision_config) -> patches a side of a merge block."""
    info: Callable[[HfConfig, dict[str, Any]], dict[str, Any]]
    """(preprocessor_config.json, vision_config) -> the fields of VisionInfo that are the
    family's."""
    transposed: Mapping[str, str] = field(default_factory=dict)
    """Matrices that are [in, out] in the checkpoint: the end of the name there -> here."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Parts of names of tensors in the checkpoint -> in the tower."""
    scaled: Mapping[str, str] = field(default_factory=dict)
    """See `TowerTensors.scaled`."""
    unfolded: str = ""
    """See `TowerTensors.unfolded`."""
    outer: Callable[[HfConfig, HfConfig], dict[str, Any]] = lambda outer, vision: {}
    """(config.json, vision_config) -> further fields of the tower's config."""


def tower_of(checkpoint: Checkpoint) -> TowerCheckpoint | None:
    """The checkpoint's vision tower; None if it has none, or one that is not built. Raises
    CheckpointError for values that make no sense."""
    outer = checkpoint.outer_config
    vision = outer.get("vision_config")
    if not isinstance(vision, dict):
        return None
    kind = str(outer.get("model_type"))
    family = FAMILIES.get(f"{kind}/{vision.get('model_type')}") or FAMILIES.get(kind)
    if family is None:
        return None
    if not any(
        name.startswith(tuple(family.prefixes)) for name in checkpoint.vision_tensors.shapes
    ):
        return None  # a text part that was saved with the whole model's config
    whole = {**family.defaults, **vision}
    config = {
        **whole,
        **family.outer(outer, whole),
        "model_type": family.tower,
        "merge_size": family.merge_size(outer, whole),
        "text_hidden_size": require(checkpoint.config, "hidden_size"),
        "vocab_size": 1,
    }
    info = _info(checkpoint, family, config)
    side = patches_per_side(config) if config.get("image_size") else 0
    tensors = TowerTensors(
        checkpoint.vision_tensors,
        family.prefixes,
        info,
        side,
        family.transposed,
        family.renamed,
        family.scaled,
        family.unfolded,
    )
    return TowerCheckpoint(checkpoint, config, info, tensors)


def unbuilt_tower(checkpoint: Checkpoint) -> str | None:
    """A note about a vision tower that is not compiled, as it is none of `FAMILIES`; None = there
    is none."""
    outer = checkpoint.outer_config
    kind, vision = str(outer.get("model_type")), outer.get("vision_config")
    if not isinstance(vision, dict) or kind in FAMILIES:
        return None
    if not any(_OF_TOWER.match(name) for name in checkpoint.vision_tensors.shapes):
        return None
    built = ", ".join(name for name in FAMILIES if "/" not in name)
    return f"the vision tower of {kind!r:.40} is not built: it reads text only; built are {built}"


def _info(checkpoint: Checkpoint, family: Family, config: dict[str, Any]) -> VisionInfo:
    processor = checkpoint.preprocessor
    if processor is None:
        raise CheckpointError(
            f"{checkpoint.folder}: has a vision tower and no {PREPROCESSOR}, which says how images "
            "are prepared; fetch it, or compile with --no-vision"
        )
    token = _image_token(checkpoint)
    kind = processor.get("resample", 3)
    if kind not in _RESAMPLING:
        raise CheckpointError(f"{PREPROCESSOR}: 'resample' {kind!r:.20} is none of 0, 1, 2, 3")
    return VisionInfo(
        image_token=token[0],
        image_token_id=token[1],
        patch_size=require(config, "patch_size"),
        merge_size=require(config, "merge_size"),
        image_size=require(config, "image_size") if config.get("image_size") else 0,
        mean=_channels(processor, "image_mean"),
        std=_channels(processor, "image_std"),
        resample=_RESAMPLING[kind],
        **family.info(processor, config),
    )


def _image_token(checkpoint: Checkpoint) -> tuple[str, int]:
    """Text and id of the placeholder token."""
    outer = checkpoint.outer_config
    key = "image_token_id" if "image_token_id" in outer else "image_token_index"
    wanted = require(outer, key)
    for text, number in token_ids(checkpoint.tokenizer).items():
        if number == wanted:
            return text, wanted
    raise CheckpointError(
        f"config.json: '{key}' is {wanted}, which tokenizer.json does not have; fetch both again"
    )


def _channels(processor: dict[str, Any], key: str) -> tuple[float, ...]:
    values = processor.get(key, [0.5, 0.5, 0.5])
    good = isinstance(values, list) and len(values) == 3
    if not good or not all(isinstance(v, int | float) and v >= 0 for v in values):
        raise CheckpointError(f"{PREPROCESSOR}: '{key}' must be three numbers; fetch it again")
    if key == "image_std" and not all(values):
        raise CheckpointError(f"{PREPROCESSOR}: '{key}' has a zero; fetch it again")
    return tuple(map(float, values))


def _idefics3(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    size, most = processor.get("size") or {}, processor.get("max_image_size") or {}
    tile = most.get("longest_edge", config["image_size"])
    if tile != config["image_size"]:
        raise refuse("max_image_size", f"the tower's image_size, {config['image_size']}", tile)
    return {
        "processor": "idefics3",
        "longest_edge": require({"longest_edge": 1820, **size}, "longest_edge"),
        "split": bool(processor.get("do_image_splitting", True)),
    }


def _gemma3_merge(outer: HfConfig, vision: HfConfig) -> int:
    """Patches a side of a token: the image's tokens form a square."""
    tokens = require({"mm_tokens_per_image": 256, **outer}, "mm_tokens_per_image")
    side = require(vision, "image_size") // require(vision, "patch_size")
    per_side = isqrt(tokens)
    if per_side**2 != tokens or side % per_side:
        raise refuse("mm_tokens_per_image", f"a square that divides {side} x {side}", tokens)
    return side // per_side


def _gemma3(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    pans = bool(processor.get("do_pan_and_scan"))
    most = processor.get("pan_and_scan_max_num_crops") or 4
    return {"processor": "gemma3", "split": pans, "max_tiles": most if pans else 0}


MOST_ROWS = 1280
"""Rows of an image of any size, as Qwen's model cards advise; larger images are scaled down."""
MOST_PATCHES = 4 * MOST_ROWS
"""Patches of such an image where they are not merged."""


def _qwen2_vl(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
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


def _qwen(tower: str, defaults: Mapping[str, Any]) -> Family:
    return Family(
        tower,
        defaults,
        {"model.visual.": "", "visual.": ""},
        lambda outer, vision: require(vision, "spatial_merge_size"),
        _qwen2_vl,
    )


def _patch_layers(outer: HfConfig, vision: HfConfig) -> dict[str, Any]:
    """`_taken_layers` of a tower with a class token."""
    strategy = outer.get("vision_feature_select_strategy", "default")
    if strategy != "default":  # the class token would be a row of the prompt
        raise refuse("vision_feature_select_strategy", "default", strategy)
    return _taken_layers(outer, vision)


def _taken_layers(outer: HfConfig, vision: HfConfig) -> dict[str, Any]:
    """The layers up to the one whose output is taken, and what the projector is."""
    taken, layers = outer.get("vision_feature_layer", -1), require(vision, "num_hidden_layers")
    if not isinstance(taken, int) or not -layers <= taken <= layers or taken == 0:
        raise refuse("vision_feature_layer", f"one layer of {layers}", taken)
    return {
        "layers": taken if taken > 0 else layers + 1 + taken,
        "projector_hidden_act": outer.get("projector_hidden_act", "gelu"),
        "projector_bias": outer.get("multimodal_projector_bias", True),
    }


def _llava(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    size, crop = processor.get("size") or {}, processor.get("crop_size") or {}
    wanted = config["image_size"]
    shortest = size.get("shortest_edge") if isinstance(size, Mapping) else size
    sides = [shortest, *(crop.values() if isinstance(crop, Mapping) else [crop])]
    if any(side != wanted for side in sides) or not processor.get("do_center_crop", True):
        raise refuse("crop_size", f"the middle square of {wanted} pixels a side", crop)
    return {"processor": "llava", "class_row": True}


def _internvl(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
    size, wanted = processor.get("size") or {}, config["image_size"]
    if any(side != wanted for side in size.values()):
        raise refuse("size", f"the tower's image_size, {wanted}", size)
    most = processor.get("max_patches", 12)
    if processor.get("min_patches", 1) != 1 or not isinstance(most, int) or not 1 <= most <= 64:
        raise refuse("max_patches", "1 to 64 tiles", most)
    # `crop_to_patches` of published files is false, and InternVLProcessor cuts all the same
    return {"processor": "internvl", "class_row": True, "split": most > 1, "max_tiles": most}


def _internvl_sides(outer: HfConfig, vision: HfConfig) -> dict[str, Any]:
    """`_patch_layers`, and the sides of the image and of a patch, which are pairs."""
    found = _patch_layers(outer, vision)
    for name in ("image_size", "patch_size"):
        side = vision[name]
        if isinstance(side, list | tuple):
            if len({*side}) != 1:
                raise refuse(name, "a square", side)
            found[name] = side[0]
    return found


def _internvl_merge(outer: HfConfig, vision: HfConfig) -> int:
    """Patches a side of a row of the prompt."""
    ratio = outer.get("downsample_ratio", 0.5)
    if ratio not in (1, 0.5, 0.25):
        raise refuse("downsample_ratio", "1, 0.5 or 0.25", ratio)
    return round(1 / ratio)


def _pixtral(processor: HfConfig, config: dict[str, Any]) -> dict[str, Any]:
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


def _pixtral_outer(outer: HfConfig, vision: HfConfig) -> dict[str, Any]:
    """`_taken_layers`; the largest image is the processor's."""
    text, merges = outer.get("text_config") or {}, outer.get("model_type") == "mistral3"
    return {
        **_taken_layers(outer, vision),
        "projector_bias": outer.get("multimodal_projector_bias", not merges),
        "projector_eps": text.get("rms_norm_eps", 1e-5),
        "merges": merges,
        "image_size": 0,
    }


def _pixtral_merge(outer: HfConfig, vision: HfConfig) -> int:
    """Patches a side of a row of the prompt."""
    if outer.get("model_type") != "mistral3":
        return 1
    return require({"spatial_merge_size": 2, **outer}, "spatial_merge_size")


_VISION_TOWER = {
    "model.vision_tower.vision_model.": "vision_model.",
    "model.vision_tower.": "vision_model.",
    "vision_tower.vision_model.": "vision_model.",
    "vision_tower.": "vision_model.",
    "model.multi_modal_projector.": "multi_modal_projector.",
    "multi_modal_projector.": "multi_modal_projector.",
}
_LLAVA = Family(
    "clip_vision",
    clip.DEFAULTS,
    _VISION_TOWER,
    lambda outer, vision: 1,
    _llava,
    outer=_patch_layers,
)

_PIXTRAL = Family(
    "pixtral_vision",
    pixtral.DEFAULTS,
    _VISION_TOWER,
    _pixtral_merge,
    _pixtral,
    renamed={"vision_model.patch_conv.": "vision_model.patch_embed.proj."},
    outer=_pixtral_outer,
    unfolded="patch_merger.merging_layer.weight",
)
_INTERNVL = Family(
    "clip_vision",
    clip.INTERNVL_DEFAULTS,
    _VISION_TOWER,
    _internvl_merge,
    _internvl,
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
    outer=_internvl_sides,
)
_IDEFICS3 = Family(
    "idefics3_vision",
    idefics3.DEFAULTS,
    {"model.vision_model.": "vision_model.", "model.connector.": "connector."},
    lambda outer, vision: require({"scale_factor": 2, **outer}, "scale_factor"),
    _idefics3,
)
_QWEN3_5 = _qwen("qwen3_vl_vision", {**qwen3_vl.DEFAULTS, "deepstack_visual_indexes": []})
FAMILIES: dict[str, Family] = {
    "idefics3": _IDEFICS3,
    "smolvlm": _IDEFICS3,
    "qwen2_vl": _qwen("qwen2_vl_vision", qwen2_vl.DEFAULTS),
    "qwen2_5_vl": _qwen("qwen2_5_vl_vision", qwen2_5_vl.DEFAULTS),
    "qwen3_vl": _qwen("qwen3_vl_vision", qwen3_vl.DEFAULTS),
    "qwen3_vl_moe": _qwen("qwen3_vl_vision", qwen3_vl.DEFAULTS),
    "llava": _LLAVA,
    "llava/pixtral": _PIXTRAL,
    "mistral3": _PIXTRAL,
    "internvl": _INTERNVL,
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5,
    "gemma3": Family(
        "gemma3_vision",
        gemma3.DEFAULTS,
        _VISION_TOWER,
        _gemma3_merge,
        _gemma3,
        {"mm_input_projection_weight": "mm_input_projection.weight"},
    ),
}
"""By `model_type` of the whole model, or of that and its tower."""
