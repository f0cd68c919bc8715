"""The vision tower of a multimodal checkpoint: a checkpoint of its own, and how images are prepared
for it.

A family is a file of `towers/`. Reads config.json and preprocessor_config.json (or, of newer
checkpoints, processor_config.json); opens no tensor but a row of
a prompt that some families have.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from mlcc.artifact.schema import VisionInfo
from mlcc.errors import CheckpointError
from mlcc_compiler.checkpoint.folder import PREPROCESSOR, Checkpoint
from mlcc_compiler.checkpoint.tokenizer.tokenizer_files import token_ids
from mlcc_compiler.checkpoint.towers.tower import TowerCheckpoint
from mlcc_compiler.checkpoint.towers.tower_tensors import TowerTensors
from mlcc_compiler.checkpoint.towers.vision_families.family import Family
from mlcc_compiler.checkpoint.towers.vision_families.registry import FAMILIES
from mlcc_compiler.models.fields import require
from mlcc_compiler.models.vision.tower import patches_per_side

_OF_TOWER = re.compile(r"(model\.)?(vision|visual|vpm|image)")
"""Beginnings of the names of a tower's tensors, of all families."""
_RESAMPLING = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of its filters."""


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
        family.halves,
        config.get("head_dim", 0),
        family.unfolded,
        family.channels_first,
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
    common = {
        "image_token": token[0],
        "image_token_id": token[1],
        "patch_size": require(config, "patch_size"),
        "merge_size": require(config, "merge_size"),
        "image_size": require(config, "image_size") if config.get("image_size") else 0,
        "mean": _channels(processor, "image_mean"),
        "std": _channels(processor, "image_std"),
        "resample": _RESAMPLING[kind],
        "newline": _newline(checkpoint, family),
    }
    return VisionInfo(**{**common, **family.info(processor, config)})


def _newline(checkpoint: Checkpoint, family: Family) -> str:
    """The row after each line of an image's tiles, f32 in base64."""
    if not family.newline:
        return ""
    tensors = checkpoint.vision_tensors
    for name in (family.newline, f"model.{family.newline}"):
        if name in tensors.shapes:
            return b64encode(tensors.read(name).astype("<f4").tobytes()).decode()
    raise CheckpointError(f"{checkpoint.folder}: has no tensor {family.newline!r}; fetch it again")


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
