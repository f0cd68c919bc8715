"""BERT (Devlin et al., 2018): learned positions, segments, post-norm layers."""

from __future__ import annotations

from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig, activation
from mlcc_compiler.models.encoder import Encoder, Table, tanh
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.layers import Embedding, LayerNorm, Linear
from mlcc_compiler.models.pooling import EncoderHead

DEFAULTS: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_act": "gelu",
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
IGNORED = (r"(^|\.)pooler\.", r"position_ids$", r"^cls\.", r"^lm_head\.")


class Embeddings(nn.Module):
    """The normalised sum of token, position and segment embeddings."""

    def __init__(self, config: DecoderConfig, entries: int, types: int) -> None:
        hidden, vocab = config.hidden_size, config.vocab_size
        self.word_embeddings = Embedding(vocab, hidden, config.activation_dtype)
        self.position_embeddings = Table(entries, hidden)
        self.token_type_embeddings = Table(types, hidden)
        self.LayerNorm = LayerNorm(hidden, config.norm_eps)
        self.vocab, self.first = vocab, entries - config.max_position

    def forward(self, ids: Tensor, positions: Tensor, segments: bool) -> Tensor:
        """segments: ids are token + segment * vocabulary."""
        vocab = self.vocab
        words = ops.remap(ids, 0, 1, vocab) if segments else ids
        if self.first:
            positions = ops.remap(positions, self.first, 1, 0)
        x = self.word_embeddings(words) + self.position_embeddings(positions)
        return self.LayerNorm(x + self.token_type_embeddings(ops.remap(ids, 0, vocab, 0)))


class SelfAttention(nn.Module):
    """Bidirectional attention within a text."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        hidden = config.hidden_size
        self.query, self.key, self.value = (Linear(hidden, hidden, True) for _ in range(3))
        self.config, self.layer = config, layer

    def forward(self, x: Tensor) -> Tensor:
        config = self.config
        shape = (x.shape[0], config.num_heads, config.head_dim)
        q, k, v = (nn.op.reshape(part(x), shape) for part in (self.query, self.key, self.value))
        out = ops.attention(q, k, v, self.layer, config.attention(self.layer))
        return nn.op.reshape(out, (x.shape[0], config.hidden_size))


class Output(nn.Module):
    """norm(residual + dense(x))."""

    def __init__(self, config: DecoderConfig, inputs: int) -> None:
        self.dense = Linear(inputs, config.hidden_size, True)
        self.LayerNorm = LayerNorm(config.hidden_size, config.norm_eps)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(residual + self.dense(x))


class Attention(nn.Module):
    """Attention, then its output."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.self = SelfAttention(config, layer)  # as HF has it
        self.output = Output(config, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(vars(self)["self"](x), x)


class Intermediate(nn.Module):
    """The wide half of the MLP."""

    def __init__(self, config: DecoderConfig) -> None:
        self.dense = Linear(config.hidden_size, config.intermediate_size, True)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return ops.activated(self.dense(x), self.activation)


class Layer(nn.Module):
    """Attention, then the MLP, each followed by a norm."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.attention = Attention(config, layer)
        self.intermediate = Intermediate(config)
        self.output = Output(config, config.intermediate_size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention(x)
        return self.output(self.intermediate(x), x)


class Stack(nn.Module):
    """HF calls it `encoder`."""

    def __init__(self, config: DecoderConfig) -> None:
        self.layer = nn.ModuleList([Layer(config, i) for i in range(config.num_layers)])


class Pooler(nn.Module):
    """The classifiers' input, from [CLS]."""

    def __init__(self, config: DecoderConfig) -> None:
        self.dense = Linear(config.hidden_size, config.hidden_size, True)

    def forward(self, x: Tensor) -> Tensor:
        return tanh(self.dense(x))


class Model(Encoder):
    """BertModel, or BertForSequenceClassification where there are labels."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head)
        self.embeddings = Embeddings(
            config, require(hf, "max_position_embeddings"), require(hf, "type_vocab_size")
        )
        self.encoder = Stack(config)
        if encoder_head.labels:
            self._add_head(config, encoder_head.labels)

    def _add_head(self, config: DecoderConfig, labels: int) -> None:
        self.pooler = Pooler(config)
        self.classifier = Linear(config.hidden_size, labels, True)

    @property
    def segments(self) -> int:
        """Two, unless the table has one row."""
        return min(2, int(self.embeddings.token_type_embeddings.weight.shape[0]))

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        x = self.embeddings(token_ids, positions, bool(self.encoder_head.labels))
        for layer in self.encoder.layer:
            x = layer(x)
        return x

    def score(self, x: Tensor) -> Tensor:
        return self.classifier(self.pooler(x))


def max_context(hf: HfConfig) -> int:
    """Maximum tokens of a text."""
    return require(hf, "max_position_embeddings")


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a BertModel."""
    kind = hf.get("position_embedding_type", "absolute")
    if kind not in (None, "absolute"):
        raise UnsupportedError(
            f"config.json: position_embedding_type {kind!r:.40} is not built; 'absolute' is"
        )
    if hf.get("is_decoder") or hf.get("add_cross_attention"):
        raise UnsupportedError("a BERT that writes (is_decoder) is not built; encoders are")
    return encoder_fields(hf, "bert", max_context(hf))


def encoder_fields(hf: HfConfig, architecture: str, positions: int) -> DecoderConfig:
    """Config fields shared by BERT's descendants."""
    heads, hidden = require(hf, "num_attention_heads"), require(hf, "hidden_size")
    layers = require(hf, "num_hidden_layers")
    if hidden % (4 * heads):
        raise refuse("hidden_size", f"a multiple of 4 x {heads} heads", hidden)
    return DecoderConfig(
        architecture=architecture,
        vocab_size=require(hf, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=require(hf, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        norm_eps=positive(hf, "layer_norm_eps"),
        activation=activation(hf),
        max_position=positions,
        tie_embeddings=False,
        attention_scale=(hidden // heads) ** -0.5,
        windows=(None,) * layers,
        ropes=(),
        rope_of_layer=(None,) * layers,
        causal=False,
        layer_norm=True,
        norm_bias=True,
        ignored=IGNORED,
    )
