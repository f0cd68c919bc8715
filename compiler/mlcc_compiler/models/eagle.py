"""EAGLE-3 (Li et al., 2025): a head of one layer that was trained for a model, and drafts from
three of its hidden states.

The states that enter a low, a middle and a high layer are projected to one; with the embedding of
the next token they are what attention reads. From there on it is a Llama's layer, with a head over
the likelier tokens of the vocabulary. Its own state stands in for the model's where more than one
token is drafted.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc_compiler.ir._tvm import Tensor, nn
from mlcc_compiler.models import ops
from mlcc_compiler.models.config import DecoderConfig, Eagle
from mlcc_compiler.models.layers import Attention, GatedMLP, Linear, RMSNorm


class EagleAttention(Attention):
    """Attention over an embedding and a state side by side."""

    def _projections(self, config: DecoderConfig) -> None:
        super()._projections(config)
        width, kv_width = (
            heads * config.head_dim for heads in (config.num_heads, config.num_kv_heads)
        )
        self.q_proj, self.k_proj, self.v_proj = (
            Linear(2 * config.hidden_size, size, config.qkv_bias)
            for size in (width, kv_width, kv_width)
        )


class EagleLayer(nn.Module):
    """x + attention(embedding, norm(x)), then x + mlp(norm(x))."""

    def __init__(self, eagle: Eagle, layer: int) -> None:
        config = eagle.config
        self.self_attn, self.mlp = EagleAttention(config, layer), GatedMLP(config)
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = (
            RMSNorm(config.hidden_size, config.norm_eps) for _ in range(3)
        )
        self.norm_before_residual = eagle.norm_before_residual

    def forward(self, embedded: Tensor, x: Tensor, table: Tensor) -> Tensor:
        normed = self.hidden_norm(x)
        both = ops.side_by_side([self.input_layernorm(embedded), normed])
        x = (normed if self.norm_before_residual else x) + self.self_attn(both, table)
        return x + self.mlp(self.post_attention_layernorm(x))


class EagleHead(nn.Module):
    """The head under its published names, beside `draft_ids`, which `checkpoint/eagle.py` makes."""

    def __init__(self, eagle: Eagle, layer: int, vocab_size: int) -> None:
        config, self.eagle = eagle.config, eagle
        self.fc = Linear(len(eagle.inputs) * config.hidden_size, config.hidden_size)
        self.midlayer = EagleLayer(eagle, layer)
        self.norm = RMSNorm(config.hidden_size, config.norm_eps)
        self.lm_head = Linear(config.hidden_size, eagle.vocab_size, result=ops.FLOAT32)
        self.draft_ids = nn.Parameter((vocab_size,), "float32")

    def fuse(self, inputs: Mapping[int, Tensor]) -> Tensor:
        """The inputs a[n, hidden] of the model's layers that it reads -> a[n, hidden]."""
        return self.fc(ops.side_by_side([inputs[layer] for layer in self.eagle.inputs]))

    def forward(self, x: Tensor, hidden: Tensor, positions: Tensor) -> Tensor:
        """x a[n, hidden], the embeddings of the next tokens, hidden a[n, hidden] -> a[n, hidden],
        before the last norm."""
        return self.midlayer(x, hidden, ops.rope_table(positions, self.eagle.config.ropes[0]))

    def logits(self, x: Tensor) -> Tensor:
        """x a[r, hidden] -> f32[r, vocab]; tokens that the head does not know are the least
        likely."""
        return ops.spread_logits(self.lm_head(self.norm(x)), self.draft_ids)
