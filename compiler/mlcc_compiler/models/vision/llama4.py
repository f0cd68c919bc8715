"""The tower of Llama 4 (Meta, 2025): SigLIP's layers with a rope over rows and columns, and four
neighbouring patches merged by an adapter's two matrices, whose output is activated too.

The class token takes part in the attention and is no row of the prompt. The host writes a row
without pixels for it, behind the patches, and the last row of the table of positions is its whole
embedding (`towers/tower_tensors.py`). Its rope turns nothing, patches count from 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures.bert import encoder_fields
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.layers import LayerNorm, Linear
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.rope import Rope
from mlcc_compiler.models.vision import siglip
from mlcc_compiler.models.vision.clip import max_context
from mlcc_compiler.models.vision.tower import Tower

__all__ = ["DEFAULTS", "Model", "max_context", "read_config"]

EPS = 1e-5
"""Of all norms, whatever the config says."""
DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 5632,
    "num_hidden_layers": 34,
    "num_attention_heads": 16,
    "num_channels": 3,
    "image_size": 448,
    "patch_size": 14,
    "hidden_act": "gelu",
    "pixel_shuffle_ratio": 0.5,
    "projector_input_dim": 4096,
    "projector_output_dim": 4096,
    "vision_output_dim": 7680,
    "multi_modal_projector_bias": False,
    "vision_feature_select_strategy": "default",
    "class_token": True,
}


class Attention(siglip.Attention):
    """Every patch attends to its whole tile."""

    def turned(self, x: Tensor, table: Tensor) -> Tensor:
        config, rows = self.config, x.shape[0]
        shape = (rows, config.num_heads, config.head_dim)
        q, k, v = (
            nn.op.reshape(project(x), shape) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = ops.rope(q, table, pairs=True), ops.rope(k, table, pairs=True)
        out = ops.attention(q, k, v, self.layer, config.attention(self.layer))
        return self.out_proj(nn.op.reshape(out, (rows, config.hidden_size)))


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.input_layernorm = LayerNorm(config.hidden_size, EPS)
        self.post_attention_layernorm = LayerNorm(config.hidden_size, EPS)
        self.self_attn, self.mlp = Attention(config, layer), siglip.MLP(config)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.self_attn.turned(self.input_layernorm(x), table)
        return x + self.mlp(self.post_attention_layernorm(x))


class Adapter(nn.Module):
    """HF's `vision_adapter.mlp`, which reads the patches of a block side by side."""

    def __init__(self, hf: HfConfig) -> None:
        inner, out = require(hf, "projector_input_dim"), require(hf, "projector_output_dim")
        self.fc1 = Linear(require(hf, "intermediate_size"), inner)
        self.fc2 = Linear(inner, out)

    def forward(self, x: Tensor) -> Tensor:
        x = ops.activated(self.fc1(x), "gelu")
        return ops.activated(self.fc2(x), "gelu")


class Projector(nn.Module):
    """HF's `multi_modal_projector`."""

    def __init__(self, width: int, hf: HfConfig) -> None:
        self.linear_1 = Linear(require(hf, "vision_output_dim"), width)


class Model(Tower):
    """Llama4VisionModel, and the projector."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        hidden = config.hidden_size
        self.embeddings = siglip.Embeddings(config, require(hf, "patch_size"))
        self.layernorm_pre, self.layernorm_post = LayerNorm(hidden, EPS), LayerNorm(hidden, EPS)
        self.layers = nn.ModuleList([Layer(config, i) for i in range(config.num_layers)])
        self.adapter, self.projector = Adapter(hf), Projector(self.text_width, hf)

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        x = self.layernorm_pre(self.embeddings(token_ids, positions))
        table = ops.mrope_table(positions, self.config.ropes[0])
        for layer in self.layers:
            x = layer(x, table)
        return self.layernorm_post(x)

    def connect(self, parts: Sequence[Tensor]) -> Tensor:
        return self.projector.linear_1(self.adapter(ops.side_by_side(list(parts))))


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """vision_config of a Llama4ForConditionalGeneration, with `merge_size` and
    `text_hidden_size`."""
    for name, wanted in (
        ("num_channels", 3),
        ("hidden_act", "gelu"),
        ("multi_modal_projector_bias", False),
        ("vision_feature_select_strategy", "default"),
        ("projector_input_dim", require(hf, "projector_output_dim")),
        ("vision_output_dim", require(hf, "projector_output_dim")),
        ("intermediate_size", require(hf, "hidden_size") * require(hf, "merge_size") ** 2),
    ):
        if hf[name] != wanted:
            raise refuse(name, str(wanted), hf[name])
    known = {**hf, "layer_norm_eps": EPS, "vocab_size": 1}
    config = encoder_fields(known, "llama4_vision", max_context(hf))
    rope = _rope(config.head_dim, hf)
    return replace(config, ropes=(rope,), rope_of_layer=(0,) * config.num_layers, ignored=())


def _rope(head_dim: int, hf: HfConfig) -> Rope:
    """The first half of the pairs turns by the column, the second by the row: the host writes a
    column where other towers have the row (`mlcc.multimodal.patches.class_columns`)."""
    given = hf.get("rope_parameters") or {}
    if not isinstance(given, dict) or given.get("rope_type", "default") != "default":
        raise refuse("rope_parameters", "of the type default", given)
    base = positive({"rope_theta": hf.get("rope_theta", 10000.0), **given}, "rope_theta")
    half = head_dim // 2
    powers = base ** -(np.arange(0, half, 2, dtype=np.float64) / half)
    frequencies = tuple(float(f) for f in powers.astype(np.float32))
    return Rope((*frequencies, *frequencies), 1.0, (0, len(frequencies), len(frequencies)))
