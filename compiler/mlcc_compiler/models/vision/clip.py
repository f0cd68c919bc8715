"""Towers whose layers are SigLIP's, with the projector of LLaVA: CLIP (Radford et al., 2021) of
LLaVA, InternViT (Chen et al., 2024) of InternVL 3, and SigLIP itself of LLaVA-OneVision.

The class token of the first two takes part in the attention and is no row of the prompt. The host
writes a row without pixels for it, behind the patches, and the last row of the table of positions
is its embedding (`towers/tower_tensors.py`, which also multiplies InternViT's layer scales into
matrices).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures.bert import encoder_fields
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import LayerNorm, Linear
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.vision import siglip
from mlcc_compiler.models.vision.tower import Tower, patches_per_side

DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "image_size": 224,
    "patch_size": 32,
    "num_channels": 3,
    "hidden_act": "quick_gelu",
    "layer_norm_eps": 1e-5,
    "projector_eps": 1e-5,
    "class_token": True,
    "pre_norm": True,
    "projector_norm": False,
    "projector_bias": True,
    "projector_hidden_act": "gelu",
}
INTERNVL_DEFAULTS = {
    **DEFAULTS,
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 448,
    "patch_size": 14,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-6,
    "pre_norm": False,
    "projector_norm": True,
}
SIGLIP_DEFAULTS = {
    **DEFAULTS,
    "image_size": 224,
    "patch_size": 16,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
    "class_token": False,
    "pre_norm": False,
}
_QUICK_GELU = 1.702


class QuickMLP(siglip.MLP):
    """SigLIP's with x * sigmoid(1.702 x) between the matrices."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        return self.fc2(ops.gated(x * _QUICK_GELU, x, "sigmoid"))


class Layer(siglip.Layer):
    """SigLIP's with the activation of the checkpoint."""

    def __init__(self, config: DecoderConfig, layer: int, quick: bool) -> None:
        super().__init__(config, layer)
        self.mlp = (QuickMLP if quick else siglip.MLP)(config)


class Stack(nn.Module):
    """HF calls it `encoder`."""

    def __init__(self, config: DecoderConfig, quick: bool) -> None:
        self.layers = nn.ModuleList([Layer(config, i, quick) for i in range(config.num_layers)])


class VisionModel(nn.Module):
    """The layers up to the one whose output is taken; no norm follows."""

    def __init__(self, config: DecoderConfig, hf: HfConfig) -> None:
        self.embeddings = siglip.Embeddings(config, hf["patch_size"])
        self.pre_layrnorm = (
            LayerNorm(config.hidden_size, config.norm_eps) if hf["pre_norm"] else None
        )
        self.encoder = Stack(config, hf["hidden_act"] == "quick_gelu")

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        x = self.embeddings(token_ids, positions)
        if self.pre_layrnorm is not None:
            x = self.pre_layrnorm(x)
        for layer in self.encoder.layers:
            x = layer(x)
        return x


class Projector(nn.Module):
    """HF's `multi_modal_projector`: the patches of a block side by side, and two matrices."""

    def __init__(self, inner: int, width: int, hf: HfConfig) -> None:
        bias = bool(hf["projector_bias"])
        self.layer_norm = LayerNorm(inner, hf["projector_eps"]) if hf["projector_norm"] else None
        self.linear_1, self.linear_2 = Linear(inner, width, bias), Linear(width, width, bias)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        x = ops.side_by_side(list(parts)) if len(parts) > 1 else parts[0]
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        return self.linear_2(ops.activated(self.linear_1(x), "gelu"))


class Model(Tower):
    """CLIPVisionModel, InternVLVisionModel or SiglipVisionModel, and the projector of LLaVA or
    InternVL."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        self.vision_model = VisionModel(config, hf)
        inner = self.parts * config.hidden_size
        self.multi_modal_projector = Projector(inner, self.text_width, hf)

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.vision_model(token_ids, positions)

    def connect(self, parts: Sequence[Tensor]) -> Tensor:
        return self.multi_modal_projector(parts)


def max_context(hf: HfConfig) -> int:
    """Patches of an image, and the class token."""
    return patches_per_side(hf) ** 2 + bool(hf["class_token"])


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """vision_config of a LlavaForConditionalGeneration, InternVLForConditionalGeneration or
    LlavaOnevisionForConditionalGeneration, with
    `merge_size`, `text_hidden_size`, and `layers`, the number of those that are computed."""
    for name, wanted in (
        ("num_channels", 3),
        ("projector_hidden_act", "gelu"),
        ("use_qk_norm", False),
        ("norm_type", "layer_norm"),
        ("attention_bias", True),
        ("use_absolute_position_embeddings", True),
    ):
        if hf.get(name, wanted) != wanted:
            raise refuse(name, str(wanted), hf[name])
    quick = hf["hidden_act"] == "quick_gelu"
    known = {**hf, "hidden_act": "silu" if quick else hf["hidden_act"], "vocab_size": 1}
    layers, whole = require(hf, "layers"), require(hf, "num_hidden_layers")
    known["num_hidden_layers"] = layers
    config = encoder_fields(known, "clip_vision", max_context(hf))
    beyond = "|".join(str(layer) for layer in range(layers, whole))
    unused = [
        r"^vision_model\.(post_layernorm|layernorm|head)\.",
        r"\.position_ids$",
        r"\.mask_token$",
    ]
    unused += [rf"^vision_model\.encoder\.layers\.({beyond})\."] if beyond else []
    return replace(config, ignored=tuple(unused))
