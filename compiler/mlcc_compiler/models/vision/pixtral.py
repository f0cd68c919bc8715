"""The tower of Pixtral (Mistral AI, 2024) and Mistral 3: images of any size, Llama's layers with a
rope over rows and columns.

Pixtral's patches are rows of the prompt. Mistral 3 merges neighbouring ones by a matrix.
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
from mlcc_compiler.models.layers import GatedMLP, Linear, RMSNorm
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.rope import Rope
from mlcc_compiler.models.vision.qwen2_vl import PatchEmbed, max_context
from mlcc_compiler.models.vision.tower import Tower

__all__ = ["DEFAULTS", "Model", "max_context", "read_config"]

EPS = 1e-5
"""Of all norms but that of the merger."""
DEFAULTS = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_channels": 3,
    "patch_size": 16,
    "hidden_act": "gelu",
    "projector_hidden_act": "gelu",
}


class Attention(nn.Module):
    """Every patch attends to its whole image."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        hidden = config.hidden_size
        self.q_proj, self.k_proj = Linear(hidden, hidden), Linear(hidden, hidden)
        self.v_proj, self.o_proj = Linear(hidden, hidden), Linear(hidden, hidden)
        self.config, self.layer = config, layer

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        config, rows = self.config, x.shape[0]
        shape = (rows, config.num_heads, config.head_dim)
        q, k, v = (
            nn.op.reshape(project(x), shape) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = ops.rope(q, table), ops.rope(k, table)
        out = ops.attention(q, k, v, self.layer, config.attention(self.layer))
        return self.o_proj(nn.op.reshape(out, (rows, config.hidden_size)))


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.attention_norm = RMSNorm(config.hidden_size, EPS)
        self.ffn_norm = RMSNorm(config.hidden_size, EPS)
        self.attention, self.feed_forward = Attention(config, layer), GatedMLP(config)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table)
        return x + self.feed_forward(self.ffn_norm(x))


class Stack(nn.Module):
    """HF calls it `transformer`."""

    def __init__(self, config: DecoderConfig) -> None:
        self.layers = nn.ModuleList([Layer(config, i) for i in range(config.num_layers)])


class VisionModel(nn.Module):
    """PixtralVisionModel up to the layer whose output is taken; no norm follows."""

    def __init__(self, config: DecoderConfig, patch_size: int) -> None:
        self.pixels = 3 * patch_size**2
        self.patch_embed = PatchEmbed(self.pixels, config.hidden_size)
        self.ln_pre = RMSNorm(config.hidden_size, EPS)
        self.transformer = Stack(config)
        self.config = config

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        pixels = ops.inputs_embeds(token_ids, None, self.pixels, self.config.vocab_size)
        x = self.ln_pre(self.patch_embed.proj(pixels))
        table = ops.mrope_table(positions, self.config.ropes[0])
        for layer in self.transformer.layers:
            x = layer(x, table)
        return x


class PatchMerger(nn.Module):
    """The patches of a block side by side, and a matrix, whose columns are in that order
    (`towers/tower_tensors.py`)."""

    def __init__(self, hidden: int, parts: int) -> None:
        self.merging_layer = Linear(parts * hidden, hidden)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        return self.merging_layer(ops.side_by_side(list(parts)))


class Projector(nn.Module):
    """HF's `multi_modal_projector`: with merged patches Mistral 3's, else LLaVA's."""

    def __init__(self, hidden: int, parts: int, width: int, hf: HfConfig) -> None:
        merges, bias = bool(hf["merges"]), bool(hf["projector_bias"])
        self.norm = RMSNorm(hidden, positive(hf, "projector_eps")) if merges else None
        self.patch_merger = PatchMerger(hidden, parts) if merges else None
        self.linear_1, self.linear_2 = Linear(hidden, width, bias), Linear(width, width, bias)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        x = parts[0]
        if self.norm is not None and self.patch_merger is not None:
            x = self.patch_merger([self.norm(part) for part in parts])
        return self.linear_2(ops.activated(self.linear_1(x), "gelu"))


class Model(Tower):
    """PixtralVisionModel, and the projector of Mistral3 or LLaVA."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        self.vision_model = VisionModel(config, require(hf, "patch_size"))
        self.multi_modal_projector = Projector(config.hidden_size, self.parts, self.text_width, hf)

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.vision_model(token_ids, positions)

    def connect(self, parts: Sequence[Tensor]) -> Tensor:
        return self.multi_modal_projector(parts)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """vision_config of a Mistral3ForConditionalGeneration or of a LLaVA with Pixtral's tower, with
    `merge_size`, `text_hidden_size`, `max_rows`, `layers` and the fields of the projector."""
    for name, wanted in (("num_channels", 3), ("projector_hidden_act", "gelu")):
        if hf[name] != wanted:
            raise refuse(name, str(wanted), hf[name])
    layers, whole = require(hf, "layers"), require(hf, "num_hidden_layers")
    known = {**hf, "layer_norm_eps": EPS, "vocab_size": 1, "num_hidden_layers": layers}
    config = encoder_fields(known, "pixtral_vision", max_context(hf))
    beyond = "|".join(str(layer) for layer in range(layers, whole))
    ignored = (rf"^vision_model\.transformer\.layers\.({beyond})\.",) if beyond else ()
    return replace(
        config,
        layer_norm=False,
        norm_bias=False,
        ropes=(_rope(config.head_dim, hf),),
        rope_of_layer=(0,) * layers,
        ignored=ignored,
    )


def _rope(head_dim: int, hf: HfConfig) -> Rope:
    """The frequencies in turn by the row and by the column, those of rows first."""
    given = hf.get("rope_parameters") or {}
    if not isinstance(given, dict) or given.get("rope_type", "axial") not in ("axial", "default"):
        raise refuse("rope_parameters", "of the type axial", given)
    base = positive({"rope_theta": hf.get("rope_theta", 10000.0), **given}, "rope_theta")
    powers = base ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    frequencies = [float(f) for f in powers.astype(np.float32)]
    rows, columns = frequencies[0::2], frequencies[1::2]
    return Rope((*rows, *columns), 1.0, (0, len(rows), len(columns)))
