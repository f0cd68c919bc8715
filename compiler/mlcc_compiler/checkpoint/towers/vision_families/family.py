"""What a family of multimodal checkpoints says about its tower, and what several families share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc_compiler.models.fields import HfConfig, refuse, require

MOST_ROWS = 1280
"""Rows of an image of any size, as Qwen's model cards advise; larger images are scaled down."""
MOST_PATCHES = 4 * MOST_ROWS
"""Patches of such an image where they are not merged."""
VISION_TOWER = {
    "model.vision_tower.vision_model.": "vision_model.",
    "model.vision_tower.": "vision_model.",
    "vision_tower.vision_model.": "vision_model.",
    "vision_tower.": "vision_model.",
    "model.multi_modal_projector.": "multi_modal_projector.",
    "multi_modal_projector.": "multi_modal_projector.",
}
"""Of checkpoints whose tower is `vision_tower`: `Family.prefixes`."""


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
    halves: tuple[str, ...] = ()
    """See `TowerTensors.halves`."""
    unfolded: str = ""
    """See `TowerTensors.unfolded`."""
    channels_first: bool = False
    """See `TowerTensors.channels_first`."""
    newline: str = ""
    """End of the name of the row after each line of an image of several tiles; "" = no such row."""
    outer: Callable[[HfConfig, HfConfig], dict[str, Any]] = lambda outer, vision: {}
    """(config.json, vision_config) -> further fields of the tower's config."""


def patch_layers(outer: HfConfig, vision: HfConfig) -> dict[str, Any]:
    """`taken_layers` of a tower with a class token."""
    strategy = outer.get("vision_feature_select_strategy", "default")
    if strategy != "default":  # the class token would be a row of the prompt
        raise refuse("vision_feature_select_strategy", "default", strategy)
    return taken_layers(outer, vision)


def taken_layers(outer: HfConfig, vision: HfConfig) -> dict[str, Any]:
    """The layers up to the one whose output is taken, and what the projector is."""
    taken, layers = outer.get("vision_feature_layer", -1), require(vision, "num_hidden_layers")
    if not isinstance(taken, int) or not -layers <= taken <= layers or taken == 0:
        raise refuse("vision_feature_layer", f"one layer of {layers}", taken)
    return {
        "layers": taken if taken > 0 else layers + 1 + taken,
        "projector_hidden_act": outer.get("projector_hidden_act", "gelu"),
        "projector_bias": outer.get("multimodal_projector_bias", True),
    }
