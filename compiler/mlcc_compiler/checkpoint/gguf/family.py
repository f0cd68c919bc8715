"""Description of llama.cpp's architectures as data: names below `blk.N.`, the converter's changes
to values, and the mapping of keys to config.json. The families are in `families/`, an entry each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc_compiler.checkpoint.gguf.keys import Keys
from mlcc_compiler.checkpoint.gguf.orders import Order, rotary

Config = dict[str, Any]
NameTable = Mapping[str, str]
"""GGUF's name of a part -> the model's, to which ".weight" or ".bias" is added; a name that
includes its kind is complete.
"""

OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
ATTENTION = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
}
MLP = {
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYER = {
    **ATTENTION,
    **MLP,
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def mlp_of(prefix: str) -> NameTable:
    """A gated MLP named `prefix`."""
    return {part: name.replace("mlp", prefix, 1) for part, name in MLP.items()}


def shared_of(prefix: str) -> NameTable:
    """A shared expert named `prefix`."""
    return {f"{part}_shexp": name for part, name in mlp_of(prefix).items()}


def mixer_of(prefix: str) -> NameTable:
    """A Mamba 2 mixer named `prefix`."""
    return {
        "ssm_in": f"{prefix}.in_proj",
        "ssm_conv1d": f"{prefix}.conv1d",
        "ssm_dt.bias": f"{prefix}.dt_bias",
        "ssm_a": f"{prefix}.A_log",
        "ssm_d": f"{prefix}.D",
        "ssm_norm": f"{prefix}.norm",
        "ssm_out": f"{prefix}.out_proj",
    }


@dataclass(frozen=True)
class JoinedTensor:
    """One tensor of the model that consists of several of a layer of the file, concatenated by
    rows."""

    parts: tuple[str, ...]
    """Names including kinds; a tensor of three dimensions contributes the rows of all its
    matrices."""
    target: str
    order: Callable[[Config], Order] | None = None
    transposed: tuple[str, ...] = ()
    """Those of `parts` whose matrices are transposed."""
    flat: bool = False
    """Whether the model has a vector of all numbers."""


def no_orders(config: Config) -> Mapping[str, Order]:
    """No reordered rows."""
    return {}


def no_columns(config: Config) -> Mapping[str, tuple[int, Order]]:
    """No reordered columns."""
    return {}


def rotary_orders(config: Config) -> Mapping[str, Order]:
    """Queries and keys reordered to rotary pairs."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    return {"attn_q": rotary(heads), "attn_k": rotary(kv_heads)}


@dataclass(frozen=True)
class Family:
    """Differences of one llama.cpp architecture from Hugging Face."""

    layer: NameTable
    config: Callable[[Keys, Config], None]
    """Completes a config of the common keys; sets `model_type`."""
    outer: NameTable = field(default_factory=lambda: OUTER)
    norm_offset: float = 0.0
    """Amount that the converter added to norm weights .."""
    plain_norms: tuple[str, ...] = ()
    """.. except these."""
    orders: Callable[[Config], Mapping[str, Order]] = no_orders
    """Row orders, by part."""
    columns: Callable[[Config], Mapping[str, tuple[int, Order]]] = no_columns
    """Orders of runs of columns, by part."""
    stacked: NameTable = field(default_factory=dict)
    """Tensors of several matrices outside of layers -> the model's names, {} for the number."""
    experts: str = "mlp.experts"
    """Names of the experts that are stacked in one tensor."""
    joins: tuple[JoinedTensor, ...] = ()
    per_layer: bool = False
    """Whether layers differ: numbers of heads and widths are given per layer."""
