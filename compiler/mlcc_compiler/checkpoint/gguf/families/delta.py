"""Qwen3-Next and Qwen3.5: layers of the gated delta rule, with attention at a fixed interval.

Files store Qwen3-Next's queries, keys, values and gates separately for all heads, and Qwen3.5's
value heads in another order.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc_compiler.checkpoint.gguf.families.llamas import image_rope
from mlcc_compiler.checkpoint.gguf.family import (
    LAYER,
    Config,
    Family,
    JoinedTensor,
    mixer_of,
    shared_of,
)
from mlcc_compiler.checkpoint.gguf.keys import Keys
from mlcc_compiler.checkpoint.gguf.orders import Order, side_by_side, tiled


def _delta(keys: Keys, config: Config) -> None:
    """The sizes of the gated delta rule, and the layers that have it."""
    heads, inner = keys.whole("ssm.time_step_rank"), keys.whole("ssm.inner_size")
    if inner % heads:
        raise keys.refuse("ssm.inner_size", f"a multiple of {heads} heads")
    config.setdefault("partial_rotary_factor", 1.0)
    config |= {
        "linear_conv_kernel_dim": keys.whole("ssm.conv_kernel"),
        "linear_num_key_heads": keys.whole("ssm.group_count"),
        "linear_num_value_heads": heads,
        "linear_key_head_dim": keys.whole("ssm.state_size"),
        "linear_value_head_dim": inner // heads,
        "full_attention_interval": keys.whole("full_attention_interval", 4),
        "attention_bias": "attn_q.bias" in keys.parts,
    }
    if config.get("num_experts"):
        shared = keys.largest("expert_shared_feed_forward_length")
        config["shared_expert_intermediate_size"] = shared or config["moe_intermediate_size"]
        config.setdefault("intermediate_size", config["moe_intermediate_size"])


def _qwen3next(keys: Keys, config: Config) -> None:
    _delta(keys, config)
    config.setdefault("num_experts", 0)
    config |= {"model_type": "qwen3_next", "norm_topk_prob": True}


def _qwen35(keys: Keys, config: Config) -> None:
    _delta(keys, config)
    if keys.has("rope.dimension_sections"):
        image_rope(keys, config, interleaved=True)
    config["model_type"] = "qwen3_5_moe_text" if config.get("num_experts") else "qwen3_5_text"


def _parts_of_delta(config: Config) -> tuple[int, int, int, int]:
    """Key heads, value heads per key head, and the widths of both."""
    groups = config["linear_num_key_heads"]
    each = config["linear_num_value_heads"] // groups
    return groups, each, config["linear_key_head_dim"], config["linear_value_head_dim"]


def _side_by_side(config: Config) -> Order:
    groups, each, keys, values = _parts_of_delta(config)
    return side_by_side(groups, (keys, keys, each * values, each * values))


def _orders_of_delta(config: Config) -> Mapping[str, Order]:
    """Qwen3.5's files interleave the value heads of different key heads."""
    groups, each, keys, values = _parts_of_delta(config)
    if each == 1:
        return {}
    wide, narrow = tiled(groups, each, values), tiled(groups, each, 1)
    behind = tiled(groups, each, values, 2 * groups * keys)
    return {
        "attn_qkv": behind,
        "ssm_conv1d": behind,
        "attn_gate": wide,
        **dict.fromkeys(("ssm_alpha", "ssm_beta", "ssm_a", "ssm_dt.bias"), narrow),
    }


def _columns_of_delta(config: Config) -> Mapping[str, tuple[int, Order]]:
    groups, each, _, values = _parts_of_delta(config)
    return {} if each == 1 else {"ssm_out": (values, tiled(groups, each, 1))}


_DELTA = {
    **LAYER,
    **mixer_of("linear_attn"),
    **shared_of("mlp.shared_expert"),
    "post_attention_norm": "post_attention_layernorm",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ssm_in": "linear_attn.in_proj_qkvz",
    "ssm_ba": "linear_attn.in_proj_ba",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
}
_FOUR = {
    **_DELTA,
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
}
_QKVZ = JoinedTensor(
    ("attn_qkv.weight", "attn_gate.weight"), "linear_attn.in_proj_qkvz.weight", _side_by_side
)
_QWEN35 = Family(
    _FOUR,
    _qwen35,
    norm_offset=1.0,
    plain_norms=("ssm_norm",),
    orders=_orders_of_delta,
    columns=_columns_of_delta,
)

FAMILIES = {
    "qwen3next": Family(
        _DELTA, _qwen3next, norm_offset=1.0, plain_norms=("ssm_norm",), joins=(_QKVZ,)
    ),
    "qwen35": _QWEN35,
    "qwen35moe": _QWEN35,
}
