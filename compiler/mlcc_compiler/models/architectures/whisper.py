"""The decoder of Whisper (Radford et al., 2022): learned positions, and in each layer attention to
the encoder's rows behind that to its own tokens. The encoder is `models/audio/whisper.py`, which
also computes the keys and values of those rows, once for a window of sound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.causal_lm import Decoder, LayerFactory
from mlcc_compiler.models.config import DecoderConfig, activation
from mlcc_compiler.models.encoder import Table
from mlcc_compiler.models.fields import HfConfig, refuse, require
from mlcc_compiler.models.layers import LayerNorm, Linear

ALIASES = {
    "d_model": "hidden_size",
    "decoder_layers": "num_hidden_layers",
    "decoder_attention_heads": "num_attention_heads",
    "decoder_ffn_dim": "intermediate_size",
    "max_target_positions": "max_position_embeddings",
    "activation_function": "hidden_act",
}
DEFAULTS: dict[str, Any] = {
    "vocab_size": 51865,
    "hidden_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "max_position_embeddings": 448,
    "max_source_positions": 1500,
    "hidden_act": "gelu",
    "scale_embedding": False,
    "tie_word_embeddings": True,
}
FIRST_TIMESTAMP, ALIGNMENT = "first_timestamp", "alignment_heads"
"""Fields that the plan adds to the config, from generation_config.json."""
EPS = 1e-5
"""Of every norm: PyTorch's default, which no config names."""


class SelfAttention(nn.Module):
    """Attention with biases, but for keys. `attend` gives the sums of values."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        hidden = config.hidden_size
        self.q_proj, self.k_proj = Linear(hidden, hidden, True), Linear(hidden, hidden)
        self.v_proj, self.out_proj = Linear(hidden, hidden, True), Linear(hidden, hidden, True)
        self.config, self.layer = config, layer

    def forward(self, x: Tensor) -> Tensor:
        config = self.config
        shape = (x.shape[0], config.num_heads, config.head_dim)
        q, k, v = (
            nn.op.reshape(project(x), shape) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = ops.attention(q, k, v, self.layer, config.attention(self.layer))
        return self.out_proj(nn.op.reshape(out, (x.shape[0], config.hidden_size)))


class CrossAttention(nn.Module):
    """Attention to the encoder's rows, whose keys and values the audio tower has computed."""

    def __init__(self, config: DecoderConfig, layer: int, rows: int) -> None:
        hidden = config.hidden_size
        self.q_proj, self.out_proj = Linear(hidden, hidden, True), Linear(hidden, hidden, True)
        self.config, self.layer, self.rows = config, layer, rows

    def forward(self, x: Tensor) -> Tensor:
        config = self.config
        out = ops.cross_attention(
            self.queries(x), self.layer, config.num_layers, self.rows, config.attention_scale
        )
        return self.out_proj(nn.op.reshape(out, (x.shape[0], config.hidden_size)))

    def queries(self, x: Tensor) -> Tensor:
        shape = (x.shape[0], self.config.num_heads, self.config.head_dim)
        return nn.op.reshape(self.q_proj(x), shape)

    def weights(self, x: Tensor, tokens: Tensor, heads: Sequence[int]) -> Tensor:
        """What these heads multiply the encoder's rows by, x a[n, hidden], of the step's `tokens`
        i32[r] -> f32[r, len(heads) * rows]."""
        config, place = self.config, (self.layer, self.config.num_layers, self.rows)
        q = self.queries(ops.take_rows(x, tokens))
        return ops.cross_weights(q, tokens, heads, place, config.attention_scale)


class Layer(nn.Module):
    """Attention to tokens, to the encoder's rows, then the MLP, each behind a norm."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        hidden, inner = config.hidden_size, config.intermediate_size
        assert config.source_rows
        self.self_attn = SelfAttention(config, layer)
        self.encoder_attn = CrossAttention(config, layer, config.source_rows)
        self.fc1, self.fc2 = Linear(hidden, inner, True), Linear(inner, hidden, True)
        self.self_attn_layer_norm = LayerNorm(hidden, EPS)
        self.encoder_attn_layer_norm = LayerNorm(hidden, EPS)
        self.final_layer_norm = LayerNorm(hidden, EPS)
        self.activation = config.activation

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        return self.heard(self.attended(x))

    def attended(self, x: Tensor) -> Tensor:
        """x behind the attention to tokens."""
        return x + self.self_attn(self.self_attn_layer_norm(x))

    def heard(self, x: Tensor) -> Tensor:
        """x behind the rest of the layer."""
        x = x + self.encoder_attn(self.encoder_attn_layer_norm(x))
        return x + self.fc2(ops.activated(self.fc1(self.final_layer_norm(x)), self.activation))


class Stack(Decoder):
    """With a table of positions."""

    def __init__(self, config: DecoderConfig, layer: LayerFactory) -> None:
        super().__init__(config, layer)
        self.embed_positions = Table(config.max_position, config.hidden_size)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.run_layers(self.placed(token_ids, positions), positions)

    def placed(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        return self.embed(token_ids) + self.embed_positions(positions)

    def align(self, token_ids: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
        """The weights of the alignment heads, by layer and head, over the encoder's rows: f32[r,
        heads * source_rows]."""
        x, found = self.placed(token_ids, positions), []
        wanted = self.config.alignment_heads
        top = max(layer for layer, _ in wanted)
        for index, layer in enumerate(self.layers[: top + 1]):
            assert isinstance(layer, Layer)
            x = layer.attended(x)
            if heads := [head for each, head in wanted if each == index]:
                normed = layer.encoder_attn_layer_norm(x)
                found.append(layer.encoder_attn.weights(normed, rows, heads))
            x = layer.heard(x) if index < top else x
        return ops.side_by_side(found)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a WhisperForConditionalGeneration, its decoder."""
    heads, hidden = require(hf, "num_attention_heads"), require(hf, "hidden_size")
    layers = require(hf, "num_hidden_layers")
    if hidden % (4 * heads):
        raise refuse("d_model", f"a multiple of 4 x {heads} heads", hidden)
    return DecoderConfig(
        architecture="whisper",
        vocab_size=require(hf, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=require(hf, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        norm_eps=EPS,
        activation=activation(hf),
        max_position=require(hf, "max_position_embeddings"),
        tie_embeddings=bool(hf["tie_word_embeddings"]),
        attention_scale=(hidden // heads) ** -0.5,
        windows=(None,) * layers,
        ropes=(),
        rope_of_layer=(None,) * layers,
        embed_scale=hidden**0.5 if hf["scale_embedding"] else 1.0,
        layer_norm=True,
        norm_bias=True,
        source_rows=require(hf, "max_source_positions"),
        alignment_heads=tuple((int(layer), int(head)) for layer, head in hf.get(ALIGNMENT, ())),
        first_timestamp=int(hf.get(FIRST_TIMESTAMP, 0)),
        ignored=(r"^model\.encoder\.", r"\.encoder_attn\.[kv]_proj\."),
    )
