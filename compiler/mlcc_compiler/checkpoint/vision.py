"""The vision tower of a multimodal checkpoint: a checkpoint of its own, and how images are prepared
for it.

A family is a row of `FAMILIES`. Reads config.json and preprocessor_config.json (or, of newer
checkpoints, processor_config.json); opens no tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

from mlcc.artifact.schema import VisionInfo
from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.files import read_object
from mlcc_compiler.checkpoint.folder import Checkpoint
from mlcc_compiler.checkpoint.tokenizer_files import token_ids
from mlcc_compiler.checkpoint.tower import TowerCheckpoint
from mlcc_compiler.checkpoint.tower_tensors import TowerTensors
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.vision import gemma3, idefics3, qwen2_5_vl, qwen2_vl, qwen3_vl
from mlcc_compiler.models.vision.tower import patches_per_side

PREPROCESSOR, PROCESSOR = "preprocessor_config.json", "processor_config.json"
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


def tower_of(checkpoint: Checkpoint) -> TowerCheckpoint | None:
    """The checkpoint's vision tower; None if it has none, or one that is not built. Raises
    CheckpointError for values that make no sense."""
    outer = checkpoint.outer_config
    family = FAMILIES.get(str(outer.get("model_type")))
    vision = outer.get("vision_config")
    if family is None or not isinstance(vision, dict):
        return None
    if not any(name.startswith(tuple(family.prefixes)) for name in checkpoint.tensors.shapes):
        return None  # a text part that was saved with the whole model's config
    config = {
        **family.defaults,
        **vision,
        "model_type": family.tower,
        "merge_size": family.merge_size(outer, {**family.defaults, **vision}),
        "text_hidden_size": require(checkpoint.config, "hidden_size"),
        "vocab_size": 1,
    }
    info = _info(checkpoint, family, config)
    side = patches_per_side(config) if config.get("image_size") else 0
    tensors = TowerTensors(checkpoint.tensors, family.prefixes, info, side, family.transposed)
    return TowerCheckpoint(checkpoint, config, info, tensors)


def _info(checkpoint: Checkpoint, family: Family, config: dict[str, Any]) -> VisionInfo:
    processor = _preprocessor(checkpoint)
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
        image_size=require(config, "image_size") if "image_size" in config else 0,
        mean=_channels(processor, "image_mean"),
        std=_channels(processor, "image_std"),
        resample=_RESAMPLING[kind],
        **family.info(processor, config),
    )


def _preprocessor(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The image processor's settings: a file of their own, or as transformers 5 saves them."""
    own = read_object(checkpoint.folder, PREPROCESSOR)
    if own is not None:
        return own
    joined = (read_object(checkpoint.folder, PROCESSOR) or {}).get("image_processor")
    return joined if isinstance(joined, dict) else None


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
    "qwen3_5": _QWEN3_5,
    "qwen3_5_moe": _QWEN3_5,
    "gemma3": Family(
        "gemma3_vision",
        gemma3.DEFAULTS,
        {
            "model.vision_tower.vision_model.": "vision_model.",
            "model.vision_tower.": "vision_model.",
            "vision_tower.vision_model.": "vision_model.",
            "vision_tower.": "vision_model.",
            "model.multi_modal_projector.": "multi_modal_projector.",
            "multi_modal_projector.": "multi_modal_projector.",
        },
        _gemma3_merge,
        _gemma3,
        {"mm_input_projection_weight": "mm_input_projection.weight"},
    ),
}
"""By `model_type` of the whole model."""
