"""The tower of Qwen2.5-VL (Bai et al., 2025): Qwen2-VL's with RMSNorm and gated MLPs, in which most
layers attend within windows of the image.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import GatedMLP, RMSNorm
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.vision import qwen2_vl
from mlcc_compiler.models.vision.qwen2_vl import EPS, Attention, max_context

__all__ = ["ALIASES", "DEFAULTS", "Model", "max_context", "read_config"]

ALIASES = qwen2_vl.ALIASES
DEFAULTS = {
    "num_hidden_layers": 32,
    "hidden_size": 3584,
    "intermediate_size": 3420,
    "num_heads": 16,
    "in_channels": 3,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "window_size": 112,
    "fullatt_block_indexes": [7, 15, 23, 31],
    "hidden_act": "silu",
}


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.norm1 = RMSNorm(config.hidden_size, EPS)
        self.norm2 = RMSNorm(config.hidden_size, EPS)
        self.attn, self.mlp = Attention(config, layer), GatedMLP(config)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), table)
        return x + self.mlp(self.norm2(x))


class Model(qwen2_vl.Model):
    """Qwen2_5_VisionTransformerPretrainedModel. Its patches come in the order of windows."""

    Block = Block

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        self.merger.ln_q = RMSNorm(config.hidden_size, EPS)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """vision_config of a Qwen2_5_VLForConditionalGeneration, with `merge_size`, `text_hidden_size`
    and `max_rows`."""
    if hf["hidden_act"] != "silu":
        raise refuse("vision_config", "silu", hf["hidden_act"])
    layers, whole = require(hf, "num_hidden_layers"), hf["fullatt_block_indexes"]
    if not isinstance(whole, list | tuple) or not all(i in range(layers) for i in whole):
        raise refuse("fullatt_block_indexes", f"layers of {layers}", whole)
    side = require(hf, "patch_size") * require(hf, "merge_size")
    if require(hf, "window_size") % side:
        raise refuse("window_size", f"a multiple of {side} pixels", hf["window_size"])
    inner = require(hf, "intermediate_size")
    return replace(
        qwen2_vl.tower_config(hf, require(hf, "hidden_size"), inner, "qwen2_5_vl_vision"),
        activation="silu",
        layer_norm=False,
        norm_bias=False,
        mlp_bias=True,
        in_windows=tuple(layer not in whole for layer in range(layers)),
    )
