"""The tower of Gemma 3 (Gemma Team, 2025): SigLIP, the mean of neighbouring patches, a norm and a
matrix.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig
from mlcc_compiler.models.layers import Linear, RMSNorm
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
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 16,
}


class Projector(nn.Module):
    """HF calls it `multi_modal_projector`."""

    def __init__(self, config: DecoderConfig, parts: int, width: int) -> None:
        self.mm_soft_emb_norm = RMSNorm(config.hidden_size, config.norm_eps, 1.0)
        self.mm_input_projection = Linear(config.hidden_size, width)
        self.parts = parts

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return self.mm_input_projection(self.mm_soft_emb_norm(total * (1.0 / self.parts)))


class Model(Tower):
    """SiglipVisionModel and Gemma3MultiModalProjector."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        self.vision_model = VisionModel(config, hf["patch_size"])
        self.multi_modal_projector = Projector(config, self.parts, self.text_width)

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.vision_model(token_ids, positions)

    def connect(self, parts: Sequence[Tensor]) -> Tensor:
        return self.multi_modal_projector(parts)


def max_context(hf: HfConfig) -> int:
    """Patches of an image."""
    return patches_per_side(hf) ** 2


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """vision_config of a Gemma3ForConditionalGeneration, with `merge_size` and
    `text_hidden_size`."""
    return siglip_config(hf, "gemma3_vision")
