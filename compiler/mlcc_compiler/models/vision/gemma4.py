"""The tower of Gemma 4 (Gemma Team, 2026): images of any size, Gemma's layers with a rope over
columns and rows, inputs and outputs of matrices within bounds, and the mean of neighbouring
patches.

The rope turns the halves of a head apart; q and k are stored so that it turns pairs of a whole head
(`towers/tower_tensors.py`). The host writes, behind a patch's pixels, its rows of the tables of
positions (`mlcc.multimodal.patches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures.bert import encoder_fields
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.layers import Linear, RMSNorm
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.rope import Rope
from mlcc_compiler.models.vision.qwen2_vl import PatchEmbed, max_context
from mlcc_compiler.models.vision.tower import Tower

__all__ = ["DEFAULTS", "Model", "max_context", "read_config"]

DEFAULTS = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 16,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "head_dim": 64,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "pooling_kernel_size": 3,
    "patch_size": 16,
    "position_embedding_size": 10240,
    "use_clipped_linears": False,
    "standardize": False,
}
TAPS = 2
"""Rows of the tables of positions that a patch's position is made of."""


class ClippedLinear(Linear):
    """A matrix whose inputs and outputs are kept within bounds of the checkpoint."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features)
        self.input_min, self.input_max = _bound(), _bound()
        self.output_min, self.output_max = _bound(), _bound()

    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(ops.clip(x, self.input_min, self.input_max))
        return ops.clip(y, self.output_min, self.output_max)


def _bound() -> nn.Parameter:
    return nn.Parameter((1,), "float32")


class Attention(nn.Module):
    """Every patch attends to its whole image, with normalised queries, keys and values."""

    def __init__(self, config: DecoderConfig, layer: int, linear: type[Linear]) -> None:
        hidden, width = config.hidden_size, config.head_dim
        inner, shared = config.num_heads * width, config.num_kv_heads * width
        self.q_proj, self.k_proj = linear(hidden, inner), linear(hidden, shared)
        self.v_proj, self.o_proj = linear(hidden, shared), linear(inner, hidden)
        self.q_norm, self.k_norm = RMSNorm(width, config.norm_eps), RMSNorm(width, config.norm_eps)
        self.ones = np.ones(width, np.float32)
        self.config, self.layer = config, layer

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        config, rows = self.config, x.shape[0]
        q = ops.rope(self.q_norm(self._heads(self.q_proj(x), config.num_heads)), table)
        k = ops.rope(self.k_norm(self._heads(self.k_proj(x), config.num_kv_heads)), table)
        v = self._heads(self.v_proj(x), config.num_kv_heads)
        ones = nn.Tensor(_expr=relax.const(self.ones))
        v = ops.rms_norm(v, ones, config.norm_eps, 0.0)
        out = ops.attention(q, k, v, self.layer, config.attention(self.layer))
        return self.o_proj(nn.op.reshape(out, (rows, config.num_heads * config.head_dim)))

    def _heads(self, x: Tensor, count: int) -> Tensor:
        return nn.op.reshape(x, (x.shape[0], count, self.config.head_dim))


class MLP(nn.Module):
    """down(activation(gate(x)) * up(x))."""

    def __init__(self, config: DecoderConfig, linear: type[Linear]) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj, self.up_proj = linear(hidden, inner), linear(hidden, inner)
        self.down_proj = linear(inner, hidden)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(ops.gated(self.gate_proj(x), self.up_proj(x), self.activation))


class Layer(nn.Module):
    """x + norm(attention(norm(x))), then x + norm(mlp(norm(x)))."""

    def __init__(self, config: DecoderConfig, layer: int, linear: type[Linear]) -> None:
        def norm() -> RMSNorm:
            return RMSNorm(config.hidden_size, config.norm_eps)

        self.self_attn, self.mlp = Attention(config, layer, linear), MLP(config, linear)
        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.pre_feedforward_layernorm, self.post_feedforward_layernorm = norm(), norm()

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        attended = self.self_attn(self.input_layernorm(x), table)
        x = x + self.post_attention_layernorm(attended)
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class Positions(nn.Module):
    """The tables of columns and of rows, one behind the other."""

    def __init__(self, count: int, hidden: int) -> None:
        self.position_table = nn.Parameter((2 * count, hidden), "float32")


class Stack(nn.Module):
    """HF calls it `encoder`."""

    def __init__(self, config: DecoderConfig, linear: type[Linear]) -> None:
        self.layers = nn.ModuleList([Layer(config, i, linear) for i in range(config.num_layers)])


class VisionModel(nn.Module):
    """Gemma4VisionModel without the mean."""

    def __init__(self, config: DecoderConfig, hf: HfConfig) -> None:
        hidden = config.hidden_size
        self.pixels, self.config = 3 * require(hf, "patch_size") ** 2, config
        self.patch_embed = PatchEmbed(self.pixels, hidden)
        self.pos_embed = Positions(require(hf, "position_axes"), hidden)
        self.encoder = Stack(config, ClippedLinear if hf["use_clipped_linears"] else Linear)
        self.standardize = bool(hf["standardize"])
        if self.standardize:
            self.std_bias = nn.Parameter((hidden,), "float32")
            self.std_scale = nn.Parameter((hidden,), "float32")

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        rows = ops.inputs_embeds(token_ids, None, self.pixels + 2 * TAPS, self.config.vocab_size)
        parts = ((0, self.pixels), (self.pixels, 2 * TAPS))
        pixels, taps = (ops.take_parts(rows, 1, [part]) for part in parts)
        placed = ops.embedding_bag(taps, self.pos_embed.position_table)
        x = self.patch_embed.proj(pixels) + placed
        table = ops.mrope_table(positions, self.config.ropes[0])
        for layer in self.encoder.layers:
            x = layer(x, table)
        return x

    def standardized(self, x: Tensor) -> Tensor:
        """Means x f32[r, hidden], less the checkpoint's bias and scaled, if it has them."""
        if not self.standardize:
            return x
        return ops.scale_columns(ops.subtract_columns(x, self.std_bias), self.std_scale)


class Projector(nn.Module):
    """HF calls it `embed_vision`: a norm without a weight, and a matrix."""

    def __init__(self, hidden: int, width: int) -> None:
        self.embedding_projection = Linear(hidden, width)


class Model(Tower):
    """Gemma4VisionModel and Gemma4MultimodalEmbedder."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        self.vision_model = VisionModel(config, hf)
        self.embed_vision = Projector(config.hidden_size, self.text_width)
        self.ones = np.ones(config.hidden_size, np.float32)

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.vision_model(token_ids, positions)

    def connect(self, parts: Sequence[Tensor]) -> Tensor:
        x = parts[0]
        for part in parts[1:]:
            x = x + part
        x = self.vision_model.standardized(x * (self.config.hidden_size**0.5 / self.parts))
        ones = nn.Tensor(_expr=relax.const(self.ones))
        normed = ops.rms_norm(x, ones, self.config.norm_eps, 0.0)
        return self.embed_vision.embedding_projection(normed)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """vision_config of a Gemma4ForConditionalGeneration, with `merge_size`, `text_hidden_size`,
    `max_rows` and `position_axes`."""
    if hf["attention_bias"]:
        raise refuse("attention_bias", "false", hf["attention_bias"])
    head_dim, eps = require(hf, "head_dim"), positive(hf, "rms_norm_eps")
    if head_dim % 4:
        raise refuse("head_dim", "a multiple of 4", head_dim)
    known = {**hf, "layer_norm_eps": eps, "hidden_act": hf["hidden_activation"], "vocab_size": 1}
    config = encoder_fields(known, "gemma4_vision", max_context(hf))
    return replace(
        config,
        num_kv_heads=require(hf, "num_key_value_heads"),
        head_dim=head_dim,
        attention_scale=1.0,
        layer_norm=False,
        norm_bias=False,
        ropes=(_rope(head_dim, hf),),
        rope_of_layer=(0,) * config.num_layers,
        ignored=(),
    )


def _rope(head_dim: int, hf: HfConfig) -> Rope:
    """The same frequencies for rows, whose pairs come first, and for columns."""
    given = hf.get("rope_parameters") or {}
    if not isinstance(given, dict) or given.get("rope_type", "axial") not in ("axial", "default"):
        raise refuse("rope_parameters", "of the type axial", given)
    base, half = positive({"rope_theta": 100.0, **given}, "rope_theta"), head_dim // 2
    powers = base ** -(np.arange(0, half, 2, dtype=np.float64) / half)
    frequencies = tuple(float(f) for f in powers.astype(np.float32))
    return Rope((*frequencies, *frequencies), 1.0, (0, len(frequencies), len(frequencies)))
