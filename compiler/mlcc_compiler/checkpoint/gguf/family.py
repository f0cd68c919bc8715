"""What a family of llama.cpp's is, as data: names below `blk.N.`, what its converter did to the
values, and how its keys become a config.json. The families are in `families/`, a row each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc_compiler.checkpoint.gguf.keys import Keys
from mlcc_compiler.checkpoint.gguf.orders import Order, rotary

Config = dict[str, Any]
Names = Mapping[str, str]
"""GGUF's name of a part -> the model's, to which ".weight" or ".bias" is added; one that has a kind
in it is a whole name."""

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


def mlp_of(place: str) -> Names:
    """A gated MLP that is called `place`."""
    return {part: name.replace("mlp", place, 1) for part, name in MLP.items()}


def shared_of(place: str) -> Names:
    """A shared expert that is called `place`."""
    return {f"{part}_shexp": name for part, name in mlp_of(place).items()}


def mixer_of(place: str) -> Names:
    """A mixer of Mamba 2 that is called `place`."""
    return {
        "ssm_in": f"{place}.in_proj",
        "ssm_conv1d": f"{place}.conv1d",
        "ssm_dt.bias": f"{place}.dt_bias",
        "ssm_a": f"{place}.A_log",
        "ssm_d": f"{place}.D",
        "ssm_norm": f"{place}.norm",
        "ssm_out": f"{place}.out_proj",
    }


@dataclass(frozen=True)
class Join:
    """One tensor of the model that is several of a layer of the file, one below the other."""

    parts: tuple[str, ...]
    """With their kinds; a tensor of three dimensions is the rows of all its matrices."""
    target: str
    order: Callable[[Config], Order] | None = None
    turned: tuple[str, ...] = ()
    """Of `parts`, those whose matrices are the other way round."""
    flat: bool = False
    """The model has a vector of all numbers."""


def no_orders(config: Config) -> Mapping[str, Order]:
    """Of a family whose rows are in order."""
    return {}


def no_columns(config: Config) -> Mapping[str, tuple[int, Order]]:
    """The same of columns."""
    return {}


def rotary_orders(config: Config) -> Mapping[str, Order]:
    """Of one whose queries and keys are in the order of pairs."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    return {"attn_q": rotary(heads), "attn_k": rotary(kv_heads)}


@dataclass(frozen=True)
class Family:
    """How an architecture of llama.cpp names and changes what Hugging Face has."""

    layer: Names
    config: Callable[[Keys, Config], None]
    """Completes a config that has what all families have; sets `model_type`."""
    outer: Names = field(default_factory=lambda: OUTER)
    norm_offset: float = 0.0
    """What the converter added to norms' weights .."""
    plain_norms: tuple[str, ...] = ()
    """.. but to these."""
    orders: Callable[[Config], Mapping[str, Order]] = no_orders
    """Of rows, by part."""
    columns: Callable[[Config], Mapping[str, tuple[int, Order]]] = no_columns
    """Of runs of so many columns, by part."""
    experts: str = "mlp.experts"
    """What the experts that lie in one tensor are called."""
    joins: tuple[Join, ...] = ()
    uneven: bool = False
    """Layers differ in kind: numbers of heads and widths are one for each."""
