"""Layers shared by the decoders. Attribute names are HF's, so parameters need no renaming.

They know nothing of quantization (each matrix has a scheme name, set by `quantization.apply`), of
paging, or of targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlcc_compiler.ir._tvm import Tensor, nn, relax
from mlcc_compiler.ir.graph import PREFIX, tensor
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig


class Linear(nn.Module):
    """y = x @ weight.T + bias, with weight [out_features, in_features]; y has x's dtype, or
    `result`."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = False, result: str | None = None
    ) -> None:
        self.weight = nn.Parameter((out_features, in_features), "float32")
        self.bias = nn.Parameter((out_features,), "float32") if bias else None
        self.scheme, self.result = "f32", result

    def forward(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, self.bias, self.scheme, self.result)


class Embedding(nn.Module):
    """A table [vocab, hidden], also usable as the output head when the two are tied. Its output has
    the activation dtype `dtype`."""

    def __init__(self, vocab_size: int, hidden_size: int, dtype: str) -> None:
        self.weight = nn.Parameter((vocab_size, hidden_size), "float32")
        self.scheme, self.dtype = "f32", dtype

    def forward(self, token_ids: Tensor) -> Tensor:
        return ops.embedding(token_ids, self.weight, self.scheme, self.dtype)

    def as_head(self, x: Tensor) -> Tensor:
        return ops.linear(x, self.weight, None, self.scheme, ops.FLOAT32)


class RMSNorm(nn.Module):
    """Zhang and Sennrich (2019); Gemma multiplies by 1 + weight (`offset` 1)."""

    def __init__(self, size: int, eps: float, offset: float = 0.0) -> None:
        self.weight = nn.Parameter((size,), "float32")
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.weight, self.eps, self.offset)


class LayerNorm(nn.Module):
    """Ba et al. (2016), with or without a bias; Nemotron multiplies by 1 + weight (`offset` 1)."""

    def __init__(self, size: int, eps: float, offset: float = 0.0, bias: bool = True) -> None:
        self.weight = nn.Parameter((size,), "float32")
        self.bias = nn.Parameter((size,), "float32") if bias else None
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        return ops.layer_norm(x, self.weight, self.bias, self.eps, self.offset)


class Convolution(nn.Module):
    """Parameters of a depthwise convolution over time: weight [channels, 1, taps], optional
    bias."""

    def __init__(self, channels: int, taps: int, bias: bool = False) -> None:
        self.weight = nn.Parameter((channels, 1, taps), "float32")
        self.bias = nn.Parameter((channels,), "float32") if bias else None


def stacked(weights: Sequence[Tensor]) -> Tensor:
    """Weights concatenated by rows, each [rows, ...]. They are stored as one, at no cost at run
    time."""
    first, rows = weights[0], sum(int(weight.shape[0]) for weight in weights)
    call = relax.call_pure_packed(
        PREFIX + "concat_rows",
        *(weight._expr for weight in weights),
        ty_args=tensor([rows, *first.shape[1:]], first.dtype),
    )
    return nn.op.wrap_nested(call, "concat_rows")


def hidden_norm(config: DecoderConfig) -> RMSNorm | LayerNorm:
    """A norm of hidden states, of the config's kind."""
    size, eps, offset = config.hidden_size, config.norm_eps, config.norm_offset
    if config.layer_norm:
        return LayerNorm(size, eps, offset, config.norm_bias)
    return RMSNorm(size, eps, offset)


class Attention(nn.Module):
    """Grouped-query attention with rotary positions, and q/k norms if the config has them."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        self.config, self.layer = config, layer
        width = config.head_dim
        self._projections(config)
        if config.qk_norm:
            self.q_norm = RMSNorm(width, config.norm_eps, config.norm_offset)
            self.k_norm = RMSNorm(width, config.norm_eps, config.norm_offset)

    def _projections(self, config: DecoderConfig) -> None:
        hidden, heads = config.hidden_size, config.num_heads * config.head_dim
        kv_heads = config.num_kv_heads * config.head_dim
        self.q_proj = Linear(hidden, heads, config.qkv_bias)
        self.k_proj = Linear(hidden, kv_heads, config.qkv_bias)
        self.v_proj = Linear(hidden, kv_heads, config.qkv_bias)
        self.o_proj = Linear(heads, hidden, config.output_bias)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [n, hidden] -> q, k, v, each [n, heads * head_dim]."""
        return self.q_proj(x), self.k_proj(x), self.v_proj(x)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        return self.o_proj(self.attend(*self.project(x), table))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, table: Tensor | None) -> Tensor:
        """Normalise and rotate the outputs of `project`, then attend: [n, heads * head_dim]."""
        config, rows = self.config, q.shape[0]
        q = nn.op.reshape(q, (rows, config.num_heads, config.head_dim))
        k = nn.op.reshape(k, (rows, config.num_kv_heads, config.head_dim))
        v = nn.op.reshape(v, (rows, config.num_kv_heads, config.head_dim))
        q, k = self.rotate(q, k, table)
        out = self.attention(q, k, v)
        return nn.op.reshape(out, (rows, config.num_heads * config.head_dim))

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The attention operator's result, of q's shape."""
        return ops.attention(q, k, v, self.layer, self.config.attention(self.layer))

    def rotate(self, q: Tensor, k: Tensor, table: Tensor | None) -> tuple[Tensor, Tensor]:
        """Queries and keys [n, heads, head_dim], normalised, then rotated to their positions."""
        if self.config.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        return self.apply_rope(q, table), self.apply_rope(k, table)

    def apply_rope(self, x: Tensor, table: Tensor | None) -> Tensor:
        """Rotate x [n, heads, head_dim]; unchanged in layers without positions."""
        return x if table is None else ops.rope(x, table, self.config.rope_pairs)


class ScaledQueryAttention(Attention):
    """`Attention` with queries scaled by their position."""

    def forward(self, x: Tensor, table: Tensor | None, growth: Tensor | None = None) -> Tensor:
        """`growth` f32[n, 1]: factor of each token's queries."""
        q, k, v = self.project(x)
        q = q if growth is None else ops.combine(q, growth)
        return self.o_proj(self.attend(q, k, v, table))


class GatedMLP(nn.Module):
    """down(activation(gate(x)) * up(x)) (Shazeer, 2020)."""

    def __init__(self, config: DecoderConfig) -> None:
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.mlp_bias
        self.gate_proj = Linear(hidden, inner, bias)
        self.up_proj = Linear(hidden, inner, bias)
        self.down_proj = Linear(inner, hidden, bias)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(ops.gated(self.gate_proj(x), self.up_proj(x), self.activation))


class PlainMLP(nn.Module):
    """down(activation(up(x)))."""

    def __init__(self, config: DecoderConfig) -> None:
        self.up_proj = Linear(config.hidden_size, config.intermediate_size, config.mlp_bias)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size, config.mlp_bias)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(ops.activated(self.up_proj(x), self.activation))


class FusedMLP(nn.Module):
    """A gated MLP with gate and up in one matrix."""

    def __init__(self, config: DecoderConfig) -> None:
        self.gate_up_proj = Linear(config.hidden_size, 2 * config.intermediate_size)
        self.down_proj = Linear(config.intermediate_size, config.hidden_size)
        self.activation = config.activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(ops.gated_fused(self.gate_up_proj(x), self.activation))


class PreNormLayer(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)): Llama and most of its descendants.

    Both branches are multiplied by the config's `residual_scale`.
    """

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        attention = Attention if config.growth is None else ScaledQueryAttention
        self.self_attn = attention(config, layer)
        self.mlp = GatedMLP(config)
        self.input_layernorm = hidden_norm(config)
        self.post_attention_layernorm = hidden_norm(config)
        self.residual_scale = config.residual_scale

    def forward(self, x: Tensor, table: Tensor | None, *extra: Tensor) -> Tensor:
        """`extra`: further inputs of attention."""
        x = x + self._scaled(self.self_attn(self.input_layernorm(x), table, *extra))
        return x + self._scaled(self.mlp(self.post_attention_layernorm(x)))

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.residual_scale == 1.0 else x * self.residual_scale


class PostNormLayer(nn.Module):
    """x + norm(attention(x)), then x + norm(mlp(x)): OLMo 2, EXAONE 4."""

    def __init__(self, config: DecoderConfig, attention: Attention) -> None:
        self.self_attn, self.mlp = attention, GatedMLP(config)
        self.post_attention_layernorm = hidden_norm(config)
        self.post_feedforward_layernorm = hidden_norm(config)

    def forward(self, x: Tensor, table: Tensor | None) -> Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(x, table))
        return x + self.post_feedforward_layernorm(self.mlp(x))


def named_modules(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Every module below `module` with its dotted name, parents first."""
    for key, value in vars(module).items():
        children = enumerate(value) if isinstance(value, nn.ModuleList) else [(None, value)]
        for index, child in children:
            if isinstance(child, nn.Module):
                name = f"{prefix}{key}" if index is None else f"{prefix}{key}.{index}"
                yield name, child
                yield from named_modules(child, name + ".")
