"""DeepSeek V2, V3 and derived models (Kimi K2, GLM-4.7-Flash): latent attention.

Since 2025 files split the matrix that maps latents to keys and values in two, the keys' transposed,
and their attention keys describe latents; older files have one matrix.
"""

from __future__ import annotations

from mlcc_compiler.checkpoint.gguf.families.llamas import corrected, log_multiplier
from mlcc_compiler.checkpoint.gguf.family import LAYER, Config, Family, JoinedTensor, shared_of
from mlcc_compiler.checkpoint.gguf.keys import Keys
from mlcc_compiler.checkpoint.gguf.orders import Order, side_by_side

_SIGMOID = 2
_GROUPS_OF_V3 = (8, 4)
"""For 256 experts; old files do not give it."""


def _deepseek2(keys: Keys, config: Config) -> None:
    rope = keys.whole("rope.dimension_count")
    width = keys.whole("attention.key_length_mla", keys.whole("attention.key_length", 192))
    value = keys.whole("attention.value_length_mla", keys.whole("attention.value_length", 128))
    if width <= rope:
        raise keys.refuse("rope.dimension_count", f"less than the width of a key, {width}")
    config |= {
        "num_key_value_heads": config["num_attention_heads"],
        "head_dim": rope,
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": width - rope,
        "v_head_dim": value,
        "kv_lora_rank": keys.whole("attention.kv_lora_rank"),
        "q_lora_rank": keys.largest("attention.q_lora_rank") or None,
    }
    config.pop("partial_rotary_factor", None)
    if config["rope_scaling"] is not None and (multiplier := log_multiplier(keys)):
        config["rope_scaling"] |= {"mscale": 10 * multiplier, "mscale_all_dim": 10 * multiplier}
    _routing(keys, config)


def _routing(keys: Keys, config: Config) -> None:
    sigmoid = keys.number("expert_gating_func", 0) == _SIGMOID
    sigmoid = sigmoid or "exp_probs_b.bias" in keys.parts
    config["model_type"] = "deepseek_v3" if sigmoid else "deepseek_v2"
    if not config.get("num_experts"):
        config["first_k_dense_replace"] = config["num_hidden_layers"]
        return
    config |= corrected(keys, config)
    if sigmoid:
        config["norm_topk_prob"] = keys.flag("expert_weights_norm", True)
        if not keys.has("expert_group_count") and config["num_experts"] == 256:
            config["n_group"], config["topk_group"] = _GROUPS_OF_V3
    elif config["n_group"] > 1:
        config["topk_method"] = "group_limited_greedy"


def _heads(config: Config) -> Order:
    widths = config["qk_nope_head_dim"], config["v_head_dim"]
    return side_by_side(config["num_attention_heads"], widths)


FAMILIES = {
    "deepseek2": Family(
        {
            **LAYER,
            **shared_of("mlp.shared_experts"),
            "attn_q_a": "self_attn.q_a_proj",
            "attn_q_a_norm": "self_attn.q_a_layernorm",
            "attn_q_b": "self_attn.q_b_proj",
            "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
            "attn_kv_a_norm": "self_attn.kv_a_layernorm",
            "attn_kv_b": "self_attn.kv_b_proj",
            "ffn_gate_inp": "mlp.gate",
            "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
        },
        _deepseek2,
        joins=(
            JoinedTensor(
                ("attn_k_b.weight", "attn_v_b.weight"),
                "self_attn.kv_b_proj.weight",
                order=_heads,
                transposed=("attn_k_b.weight",),
            ),
        ),
    ),
}
