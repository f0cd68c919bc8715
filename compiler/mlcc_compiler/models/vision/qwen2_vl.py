"""The tower of Qwen2-VL (Wang et al., 2024): images of any size, a rope over rows and columns, and
neighbouring patches merged by two matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.architectures.bert import encoder_fields
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import LayerNorm, Linear
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.rope import Rope
from mlcc_compiler.models.vision.siglip import PatchEmbedding
from mlcc_compiler.models.vision.tower import Tower

EPS = 1e-6
_QUICK_GELU = 1.702

ALIASES = {"depth": "num_hidden_layers"}
DEFAULTS = {
    "num_hidden_layers": 32,
    "embed_dim": 1280,
    "num_heads": 16,
    "mlp_ratio": 4,
    "in_channels": 3,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "hidden_act": "quick_gelu",
}


class Attention(nn.Module):
    """Every patch attends to its whole image; q, k and v are one matrix."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        hidden = config.hidden_size
        self.qkv, self.proj = Linear(hidden, 3 * hidden, True), Linear(hidden, hidden, True)
        self.config, self.layer = config, layer

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        config, rows = self.config, x.shape[0]
        shape, hidden = (rows, config.num_heads, config.head_dim), config.hidden_size
        parts = nn.op.split(self.qkv(x), [hidden, 2 * hidden], axis=1)
        q, k, v = (nn.op.reshape(part, shape) for part in parts)
        q, k = ops.rope(q, table), ops.rope(k, table)
        out = ops.attention(q, k, v, self.layer, config.attention(self.layer))
        return self.proj(nn.op.reshape(out, (rows, hidden)))


class MLP(nn.Module):
    """Two matrices with x * sigmoid(1.702 x) between them."""

    def __init__(self, config: DecoderConfig) -> None:
        self.fc1 = Linear(config.hidden_size, config.intermediate_size, True)
        self.fc2 = Linear(config.intermediate_size, config.hidden_size, True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.fc1(x)
        return self.fc2(ops.gated(x * _QUICK_GELU, x, "sigmoid"))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    MLP: type[nn.Module] = MLP

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.norm1 = LayerNorm(config.hidden_size, EPS)
        self.norm2 = LayerNorm(config.hidden_size, EPS)
        self.attn, self.mlp = Attention(config, layer), self.MLP(config)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x), table)
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """HF calls its matrix `proj`; the bias holds the image processor's mean."""

    def __init__(self, pixels: int, hidden: int) -> None:
        self.proj = PatchEmbedding(pixels, hidden)


class Merger(nn.Module):
    """A norm, the patches of a block side by side, and two matrices."""

    def __init__(self, hidden: int, parts: int, width: int) -> None:
        self.ln_q = LayerNorm(hidden, EPS)
        inner = parts * hidden
        self.mlp = nn.ModuleList([Linear(inner, inner, True), _Gelu(), Linear(inner, width, True)])

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        x = ops.side_by_side([self.ln_q(part) for part in parts])
        for module in self.mlp:
            x = module(x)
        return x


class _Gelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ops.activated(x, "gelu")


class Model(Tower):
    """Qwen2VisionTransformerPretrainedModel."""

    Block: type[nn.Module] = Block

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        self.pixels = 3 * require(hf, "patch_size") ** 2
        self.patch_embed = PatchEmbed(self.pixels, config.hidden_size)
        self.blocks = nn.ModuleList([self.Block(config, i) for i in range(config.num_layers)])
        self.merger = Merger(config.hidden_size, self.parts, self.text_width)

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        config = self.config
        x = self.patch_embed.proj(
            ops.inputs_embeds(token_ids, None, self.pixels, config.vocab_size)
        )
        table = ops.mrope_table(positions, config.ropes[0])
        for block in self.blocks:
            x = block(x, table)
        return x

    def connect(self, parts: Sequence[Tensor]) -> Tensor:
        return self.merger(parts)


def max_context(hf: HfConfig) -> int:
    """Patches of the largest image."""
    return require(hf, "max_rows") * require(hf, "merge_size") ** 2


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """vision_config of a Qwen2VLForConditionalGeneration, with `merge_size`, `text_hidden_size` and
    `max_rows`."""
    if hf["hidden_act"] != "quick_gelu":
        raise refuse("vision_config", "quick_gelu", hf["hidden_act"])
    hidden = require(hf, "embed_dim")
    return tower_config(
        hf, require(hf, "embed_dim"), int(hidden * hf["mlp_ratio"]), "qwen2_vl_vision"
    )


def tower_config(hf: HfConfig, hidden: int, inner: int, architecture: str) -> DecoderConfig:
    """The config of a tower of Qwen's; hidden, inner: widths of its layers and of their MLPs."""
    heads = require(hf, "num_heads")
    if hf["in_channels"] != 3:
        raise refuse("in_channels", "3", hf["in_channels"])
    sizes = {
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_hidden_layers": require(hf, "num_hidden_layers"),
        "intermediate_size": inner,
        "layer_norm_eps": EPS,
        "hidden_act": "silu",  # of no layer here
        "vocab_size": 1,
    }
    config = encoder_fields(sizes, architecture, max_context(hf))
    return replace(
        config, ropes=(axial_rope(hidden // heads),), rope_of_layer=(0,) * config.num_layers,
        ignored=(),
    )  # fmt: skip


def axial_rope(head_dim: int) -> Rope:
    """Half of the frequencies turn by the row, half by the column."""
    if head_dim % 4:
        raise refuse("embed_dim", "heads of a multiple of 4", head_dim)
    half = head_dim // 2
    powers = 10000.0 ** -(np.arange(0, half, 2, dtype=np.float64) / half)
    frequencies = tuple(float(f) for f in powers.astype(np.float32))
    return Rope((*frequencies, *frequencies), 1.0, (0, len(frequencies), len(frequencies)))
