"""Per-layer embeddings (Gemma 3n and 4; Gemma Team, 2025): a second embedding table with a part for
every layer, and a projection of the first one's rows. Their use within a layer is in the
architectures' files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.causal_lm import Decoder, LayerFactory
from mlcc_compiler.models.fields import HfConfig, require
from mlcc_compiler.models.layers import Embedding, Linear, RMSNorm


@dataclass(frozen=True, kw_only=True)
class LayerInputs:
    """The per-layer embedding: `width` numbers per layer, of `vocab_size` ids."""

    vocab_size: int
    width: int
    pad_id: int
    """The token whose row stands for those of images and of sound."""


class Stack(Decoder):
    """A stack whose layers each read a part of a second embedding and of a projection of the
    first."""

    def __init__(self, config: Any, layer: LayerFactory) -> None:
        super().__init__(config, layer)
        self.inputs = config.inputs
        if config.inputs is not None:
            width, dtype = config.num_layers * config.inputs.width, config.activation_dtype
            self.embed_tokens_per_layer = Embedding(config.inputs.vocab_size, width, dtype)
            self.per_layer_model_projection = Linear(config.hidden_size, width)
            self.per_layer_projection_norm = RMSNorm(config.inputs.width, config.norm_eps)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        x = self.embed(token_ids)
        layer_inputs = [] if self.inputs is None else self.layer_inputs(token_ids, x, self.inputs)
        return self.run_layers(x, positions, layer_inputs)

    def layer_inputs(self, token_ids: Tensor, x: Tensor, inputs: LayerInputs) -> Sequence[Tensor]:
        """The input of each layer, a[n, width]; x is the input of the first layer."""
        rows, count, width = x.shape[0], self.config.num_layers, inputs.width
        if self.config.reads_images:
            token_ids = ops.replace_from(token_ids, self.config.vocab_size, inputs.pad_id)
        if inputs.vocab_size < self.config.vocab_size:  # ids behind are no text's
            token_ids = ops.remap(token_ids, 0, 1, inputs.vocab_size)
        looked_up = self.embed_tokens_per_layer(token_ids) * width**0.5
        projected = self.per_layer_model_projection(x) * self.config.hidden_size**-0.5
        normed = self.per_layer_projection_norm(nn.op.reshape(projected, (rows, count, width)))
        both = (nn.op.reshape(normed, (rows, count * width)) + looked_up) * 0.5**0.5
        return [ops.take_parts(both, 1, [(i * width, width)]) for i in range(count)]


def inputs_of(hf: HfConfig) -> LayerInputs | None:
    """The per-layer embedding, if there is one."""
    if hf["hidden_size_per_layer_input"] in (0, None):
        return None
    return LayerInputs(
        vocab_size=require(hf, "vocab_size_per_layer_input"),
        width=require(hf, "hidden_size_per_layer_input"),
        pad_id=hf.get("pad_token_id") or 0,
    )
