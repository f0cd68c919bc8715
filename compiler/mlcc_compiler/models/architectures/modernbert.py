"""ModernBERT (Warner et al., 2024): rotary positions, pre-norm layers, a gated MLP, and in two of
three layers windowed attention on both sides.
"""

from __future__ import annotations

from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig, activation, rope_parameters
from mlcc_compiler.models.encoder import Encoder
from mlcc_compiler.models.fields import HfConfig, layer_types, positive, refuse, require
from mlcc_compiler.models.layers import Embedding, LayerNorm, Linear
from mlcc_compiler.models.pooling import EncoderHead
from mlcc_compiler.models.rope import Rope, RopeConfig, build_rope

DEFAULTS: dict[str, Any] = {
    "vocab_size": 50368,
    "hidden_size": 768,
    "intermediate_size": 1152,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "hidden_activation": "gelu",
    "max_position_embeddings": 8192,
    "norm_eps": 1e-5,
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "global_attn_every_n_layers": 3,
    "local_attention": 128,
    "classifier_pooling": "cls",
    "classifier_bias": False,
    "classifier_activation": "gelu",
}
IGNORED = (r"^head\.", r"^decoder\.")
FULL, SLIDING = "full_attention", "sliding_attention"


def _norm(config: DecoderConfig) -> LayerNorm:
    return LayerNorm(config.hidden_size, config.norm_eps, 0.0, config.norm_bias)


class Embeddings(nn.Module):
    """Tokens only: positions are rotary."""

    def __init__(self, config: DecoderConfig) -> None:
        self.tok_embeddings = Embedding(
            config.vocab_size, config.hidden_size, config.activation_dtype
        )
        self.norm = _norm(config)

    def forward(self, ids: Tensor) -> Tensor:
        return self.norm(self.tok_embeddings(ids))


class Attention(nn.Module):
    """q, k and v from one matrix."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        hidden = config.hidden_size
        self.Wqkv = Linear(hidden, 3 * hidden, config.qkv_bias)
        self.Wo = Linear(hidden, hidden, config.output_bias)
        self.config, self.layer = config, layer

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        config, hidden = self.config, self.config.hidden_size
        shape = (x.shape[0], config.num_heads, config.head_dim)
        parts = nn.op.split(self.Wqkv(x), [hidden, 2 * hidden], axis=1)
        q, k, v = (nn.op.reshape(part, shape) for part in parts)
        q, k = ops.rope(q, table), ops.rope(k, table)
        out = ops.attention(q, k, v, self.layer, config.attention(self.layer))
        return self.Wo(nn.op.reshape(out, (x.shape[0], hidden)))


class MLP(nn.Module):
    """Wo(activation(a) * b), where Wi(x) is [a, b]."""

    def __init__(self, config: DecoderConfig) -> None:
        self.Wi = Linear(config.hidden_size, 2 * config.intermediate_size, config.mlp_bias)
        self.Wo = Linear(config.intermediate_size, config.hidden_size, config.mlp_bias)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.Wo(ops.gated_fused(self.Wi(x), self.activation))


class Layer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); the first layer's input is already
    normalised."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        if layer:
            self.attn_norm = _norm(config)
        self.attn = Attention(config, layer)
        self.mlp_norm = _norm(config)
        self.mlp = MLP(config)
        self.first = layer == 0

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        x = x + self.attn(x if self.first else self.attn_norm(x), table)
        return x + self.mlp(self.mlp_norm(x))


class Head(nn.Module):
    """norm(activation(dense(x)))."""

    def __init__(self, config: DecoderConfig, bias: bool, kind: str) -> None:
        self.dense = Linear(config.hidden_size, config.hidden_size, bias)
        self.norm = _norm(config)
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(ops.activated(self.dense(x), self.kind))


class Model(Encoder):
    """ModernBertModel, or ModernBertForSequenceClassification where there are labels."""

    def __init__(self, config: DecoderConfig, encoder_head: EncoderHead, hf: HfConfig) -> None:
        super().__init__(config, encoder_head)
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList([Layer(config, i) for i in range(config.num_layers)])
        self.final_norm = _norm(config)
        if encoder_head.labels:
            kind = activation({"hidden_act": hf["classifier_activation"]})
            self.head = Head(config, bool(hf["classifier_bias"]), kind)
            self.classifier = Linear(config.hidden_size, encoder_head.labels, True)

    def states(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        config = self.config
        x = self.embeddings(token_ids)
        tables = [ops.rope_table(positions, rope) for rope in config.ropes]
        for index, layer in enumerate(self.layers):
            x = layer(x, tables[config.rope_of_layer[index] or 0])
        return self.final_norm(x)

    def score(self, x: Tensor) -> Tensor:
        return self.classifier(self.head(x))


def max_context(hf: HfConfig) -> int:
    """Tokens of a text that the model was trained for."""
    return require(hf, "max_position_embeddings")


def classifier_pooling(hf: HfConfig) -> str:
    """Pooling of classifiers: cls or mean."""
    pooling = hf["classifier_pooling"]
    if pooling not in ("cls", "mean"):
        raise refuse("classifier_pooling", "cls or mean", pooling)
    return str(pooling)


def read_config(hf: HfConfig, context: int) -> DecoderConfig:
    """config.json of a ModernBertModel."""
    heads, hidden = require(hf, "num_attention_heads"), require(hf, "hidden_size")
    layers, every = require(hf, "num_hidden_layers"), require(hf, "global_attn_every_n_layers")
    if hidden % (4 * heads):
        raise refuse("hidden_size", f"a multiple of 4 x {heads} heads", hidden)
    if hf.get("deterministic_flash_attn") not in (None, False, True):
        raise UnsupportedError("config.json: deterministic_flash_attn is no switch")
    types = layer_types(hf, [SLIDING if i % every else FULL for i in range(layers)])
    near = require(hf, "local_attention") // 2 + 1
    return DecoderConfig(
        architecture="modernbert",
        vocab_size=require(hf, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=require(hf, "intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden // heads,
        norm_eps=positive(hf, "norm_eps"),
        activation=activation(hf, "hidden_activation"),
        max_position=max_context(hf),
        tie_embeddings=False,
        attention_scale=(hidden // heads) ** -0.5,
        windows=tuple(near if kind == SLIDING else None for kind in types),
        ropes=(_rope(hf, FULL, "global_rope_theta"), _rope(hf, SLIDING, "local_rope_theta")),
        rope_of_layer=tuple(int(kind == SLIDING) for kind in types),
        causal=False,
        qkv_bias=bool(hf["attention_bias"]),
        output_bias=bool(hf["attention_bias"]),
        mlp_bias=bool(hf["mlp_bias"]),
        layer_norm=True,
        norm_bias=bool(hf["norm_bias"]),
        ignored=IGNORED,
    )


def _rope(hf: HfConfig, kind: str, old: str) -> Rope:
    """The rope of one kind of layer: `rope_parameters`, or older configs' field."""
    given = rope_parameters(hf).get(kind) or {}
    if given.get("rope_type", "default") != "default":
        raise UnsupportedError(
            f"config.json: rope type {given['rope_type']!r:.40} of ModernBERT is not built; "
            "'default' is"
        )
    theta = positive(given, "rope_theta") if "rope_theta" in given else positive(hf, old)
    dim = require(hf, "hidden_size") // require(hf, "num_attention_heads")
    most = max_context(hf)
    return build_rope(RopeConfig({"rope_type": "default"}, theta, dim, most, most))
