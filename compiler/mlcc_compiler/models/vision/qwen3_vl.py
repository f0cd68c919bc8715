"""The tower of Qwen3-VL (Qwen team, 2025): Qwen2-VL's with a table of positions, which is
interpolated to an image's grid, and with further features of some of its layers, which the language
model adds to its first layers (DeepStack; Meng et al., 2024).

The host writes, behind a patch's pixels, which rows of the table are its position, and with which
weights (`mlcc.multimodal.patches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig
from mlcc_compiler.models.encoder import Table
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import LayerNorm, Linear
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.vision import qwen2_vl
from mlcc_compiler.models.vision.qwen2_vl import EPS, PatchEmbed, max_context
from mlcc_compiler.models.vision.tower import Tower

__all__ = ["ALIASES", "DEFAULTS", "Model", "max_context", "read_config"]

ALIASES = qwen2_vl.ALIASES
DEFAULTS = {
    "num_hidden_layers": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_heads": 16,
    "in_channels": 3,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "num_position_embeddings": 2304,
    "deepstack_visual_indexes": [8, 16, 24],
    "hidden_act": "gelu_pytorch_tanh",
}
TAPS = 4
"""Rows of the table of positions that a patch's position is made of."""


class MLP(nn.Module):
    """Two matrices with the tanh form of GELU between them."""

    def __init__(self, config: DecoderConfig) -> None:
        self.linear_fc1 = Linear(config.hidden_size, config.intermediate_size, True)
        self.linear_fc2 = Linear(config.intermediate_size, config.hidden_size, True)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_fc2(ops.activated(self.linear_fc1(x), self.activation))


class Block(qwen2_vl.Block):
    """Qwen2-VL's with another MLP."""

    MLP = MLP


class Merger(nn.Module):
    """The patches of a block side by side, normalised before that or after it, and two matrices."""

    def __init__(self, hidden: int, parts: int, width: int, joined_norm: bool) -> None:
        inner = parts * hidden
        self.joined_norm = joined_norm
        self.norm = LayerNorm(inner if joined_norm else hidden, EPS)
        self.linear_fc1, self.linear_fc2 = Linear(inner, inner, True), Linear(inner, width, True)

    def forward(self, parts: Sequence[Tensor]) -> Tensor:
        if self.joined_norm:
            x = self.norm(ops.side_by_side(list(parts)))
        else:
            x = ops.side_by_side([self.norm(part) for part in parts])
        return self.linear_fc2(ops.activated(self.linear_fc1(x), "gelu"))


class Model(Tower):
    """Qwen3VLVisionModel. A row has the merger's features, then those of DeepStack."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head, hf)
        hidden, width = config.hidden_size, self.text_width
        self.pixels = 3 * require(hf, "patch_size") ** 2
        self.taken = [int(layer) for layer in hf["deepstack_visual_indexes"]]
        self.patch_embed = PatchEmbed(self.pixels, hidden)
        self.pos_embed = Table(require(hf, "num_position_embeddings"), hidden)
        self.blocks = nn.ModuleList([Block(config, i) for i in range(config.num_layers)])
        self.merger = Merger(hidden, self.parts, width, False)
        self.deepstack_merger_list = nn.ModuleList(
            [Merger(hidden, self.parts, width, True) for _ in self.taken]
        )

    def forward(self, token_ids: Tensor, positions: Tensor, logit_rows: Tensor) -> Tensor:
        config = self.config
        rows = ops.inputs_embeds(token_ids, None, self.pixels + 2 * TAPS, config.vocab_size)
        parts = ((0, self.pixels), (self.pixels, 2 * TAPS))
        pixels, taps = (ops.take_parts(rows, 1, [part]) for part in parts)
        x = self.patch_embed.proj(pixels) + ops.embedding_bag(taps, self.pos_embed.weight)
        table = ops.mrope_table(positions, config.ropes[0])
        mergers = dict(zip(self.taken, self.deepstack_merger_list, strict=True))
        features: dict[int, Tensor] = {}
        for layer, block in enumerate(self.blocks):
            x = block(x, table)
            if layer in mergers:
                features[layer] = mergers[layer](self._blocks_of(x, logit_rows))
        merged = self.merger(self._blocks_of(x, logit_rows))
        if not self.taken:
            return merged
        return ops.side_by_side([merged, *(features[layer] for layer in self.taken)])

    def _blocks_of(self, x: Tensor, logit_rows: Tensor) -> list[Tensor]:
        """The rows of each place of the merge blocks."""
        return [ops.take_rows(x, ops.remap(logit_rows, k, 1, 0)) for k in range(self.parts)]

    @property
    def width(self) -> int:
        """All parts of a row."""
        return self.text_width * (1 + len(self.taken))


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """vision_config of a Qwen3VLForConditionalGeneration, with `merge_size`, `text_hidden_size` and
    `max_rows`."""
    if hf["hidden_act"] != "gelu_pytorch_tanh":
        raise refuse("vision_config", "gelu_pytorch_tanh", hf["hidden_act"])
    layers, taken = require(hf, "num_hidden_layers"), hf["deepstack_visual_indexes"]
    if not isinstance(taken, list | tuple) or not all(i in range(layers) for i in taken):
        raise refuse("deepstack_visual_indexes", f"layers of {layers}", taken)
    inner = require(hf, "intermediate_size")
    config = qwen2_vl.tower_config(hf, require(hf, "hidden_size"), inner, "qwen3_vl_vision")
    return replace(config, activation="gelu_tanh")
