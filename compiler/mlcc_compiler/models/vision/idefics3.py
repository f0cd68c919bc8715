"""The tower of Idefics 3 and SmolVLM: SigLIP, then pixel shuffle (Laurençon et al., 2024; Marafioti
et al., 2025).
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import Linear
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.vision.siglip import VisionModel
from mlcc_compiler.models.vision.tower import (
    SIGLIP_DEFAULTS,
    Tower,
    patches_per_side,
    siglip_config,
)

DEFAULTS = {
    **SIGLIP_DEFAULTS,
    "hidden_size": 1152,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 32,
}


class Projection(nn.Module):
    """HF calls it `modality_projection`."""

    def __init__(self, inputs: int, width: int) -> None:
        self.proj = Linear(inputs, width)


class Connector(nn.Module):
    """Pixel shuffle: the patches of a block side by side, then a matrix."""

    def __init__(self, inputs: int, width: int) -> None:
        self.modality_projection = Projection(inputs, width)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        return self.modality_projection.proj(ops.side_by_side(parts))


class Model(Tower):
    """Idefics3VisionTransformer and Idefics3Connector."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        self.vision_model = VisionModel(config, hf["patch_size"])
        self.connector = Connector(self.parts * config.hidden_size, self.text_width)

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.vision_model(token_ids, positions)

    def connect(self, parts: Sequence[Tensor]) -> Tensor:
        return self.connector(parts)


def max_context(hf: HfConfig) -> int:
    """Patches of an image."""
    return patches_per_side(hf) ** 2


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """vision_config of an Idefics3ForConditionalGeneration or SmolVLMForConditionalGeneration,
    with `merge_size` and `text_hidden_size`."""
    return siglip_config(hf, "idefics3_vision")
