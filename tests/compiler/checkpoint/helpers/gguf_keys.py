"""The keys that llama.cpp's converter writes for a config.json, by `model_type`: its documented
behaviour, implemented independently. `MORE` has the keys of single families; the rest are
common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

Config = Mapping[str, Any]
Keys = dict[str, Any]

_COMMON: tuple[tuple[str, tuple[str, ...], type], ...] = (
    ("context_length", ("max_position_embeddings",), int),
    ("embedding_length", ("hidden_size",), int),
    ("block_count", ("num_hidden_layers",), int),
    ("feed_forward_length", ("intermediate_size",), int),
    ("attention.head_count", ("num_attention_heads",), int),
    ("attention.head_count_kv", ("num_key_value_heads",), int),
    ("attention.layer_norm_rms_epsilon", ("rms_norm_eps", "norm_eps"), float),
    (
        "attention.layer_norm_epsilon",
        ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"),
        float,
    ),
    ("expert_count", ("num_local_experts", "num_experts"), int),
    ("expert_used_count", ("num_experts_per_tok",), int),
    ("expert_group_count", ("n_group",), int),
    ("expert_group_used_count", ("topk_group",), int),
    ("attention.key_length", ("head_dim",), int),
    ("attention.value_length", ("head_dim",), int),
)


def keys_of(config: Config) -> Keys:
    """GGUF's keys of a config, without the architecture's prefix."""
    found: Keys = {}
    for key, names, kind in _COMMON:
        value = next((config[n] for n in names if config.get(n) is not None), None)
        if value is not None:
            found[key] = value if isinstance(value, list) else kind(value)
    kind = config["model_type"]
    found |= _rope(config)
    found |= MORE[kind](config) if kind in MORE else {}
    return {key: value for key, value in found.items() if value is not None}


def _width(config: Config) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _rope(config: Config) -> Keys:
    given = config.get("rope_parameters") or {}
    rope = given.get("full_attention", given)
    if not rope:
        return {}
    found: Keys = {"rope.freq_base": float(rope["rope_theta"])}
    if local := given.get("sliding_attention"):
        found["rope.freq_base_swa"] = float(local["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        found["rope.scaling.type"] = rope["rope_type"]
        found["rope.scaling.factor"] = float(rope["factor"])
    if sections := rope.get("mrope_section"):
        found["rope.dimension_sections"] = [*sections, 0]
    original = rope.get("original_max_position_embeddings")
    if rope["rope_type"] == "yarn":
        found["rope.scaling.original_context_length"] = original
        for name in ("beta_fast", "beta_slow"):
            if rope.get(name) is not None:
                found[f"rope.scaling.yarn_{name}"] = float(rope[name])
    if rope["rope_type"] == "longrope":
        found["rope.scaling.original_context_length"] = original
        factor = config["max_position_embeddings"] / original
        scale = float(np.sqrt(1 + np.log(factor) / np.log(original)))
        found["rope.scaling.attn_factor"] = scale
    return found


def _partial(config: Config) -> Keys:
    part = (config.get("rope_parameters") or {}).get(
        "partial_rotary_factor", config.get("partial_rotary_factor")
    )
    return {"rope.dimension_count": int(_width(config) * (1.0 if part is None else part))}


def _llama(config: Config) -> Keys:
    return {"rope.dimension_count": _width(config), "vocab_size": config["vocab_size"]}


def _mistral(config: Config) -> Keys:
    return _llama(config) | {"attention.sliding_window": config.get("sliding_window")}


def _gemma2(config: Config) -> Keys:
    return {
        "attn_logit_softcapping": config.get("attn_logit_softcapping"),
        "final_logit_softcapping": config.get("final_logit_softcapping"),
        "attention.sliding_window": config.get("sliding_window"),
    }


def full_layers(config: Config) -> Config:
    """The fields of Gemma 4's layers with all tokens that are others than of those with a window:
    in published files `global_head_dim` and `num_global_key_value_heads`."""
    found: Config = next(iter(config["per_layer_config"].values()))
    return found


def _gemma4(config: Config) -> Keys:
    layers, shared = config["num_hidden_layers"], config["num_kv_shared_layers"]
    inner, full = config["intermediate_size"], full_layers(config)
    wide, count = full["head_dim"], full.get("num_key_value_heads")
    slides = [kind == "sliding_attention" for kind in config["layer_types"]]
    found: Keys = {
        "final_logit_softcapping": config["final_logit_softcapping"],
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": slides,
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        **dict.fromkeys(("attention.key_length", "attention.value_length"), wide),
        **dict.fromkeys(("attention.key_length_swa", "attention.value_length_swa"),
                        config["head_dim"]),
        "rope.dimension_count": wide,
        "rope.dimension_count_swa": config["head_dim"],
        **dict.fromkeys(("expert_count", "expert_used_count"), None),
    }  # fmt: skip
    if config["use_double_wide_mlp"]:
        found["feed_forward_length"] = [inner * (1 + (i >= layers - shared)) for i in range(layers)]
    if config["enable_moe_block"]:
        found |= {
            "expert_count": config["num_experts"],
            "expert_used_count": config["top_k_experts"],
            "expert_feed_forward_length": config["moe_intermediate_size"],
        }
    if count is not None:
        own = config["num_key_value_heads"]
        found["attention.head_count_kv"] = [own if each else count for each in slides]
    return found


def _gemma3n(config: Config) -> Keys:
    shares = config["activation_sparsity_pattern"]
    scales = [NormalDist().inv_cdf(float(np.float32(s))) if s else -np.inf for s in shares]
    return _gemma2(config) | {
        "altup.active_idx": config["altup_active_idx"],
        "altup.num_inputs": config["altup_num_inputs"],
        "embedding_length_per_layer_input": config["hidden_size_per_layer_input"],
        "attention.shared_kv_layers": config["num_kv_shared_layers"],
        "activation_sparsity_scale": scales,
        "attention.sliding_window_pattern": [
            kind == "sliding_attention" for kind in config["layer_types"]
        ],
    }


def _experts(config: Config) -> Keys:
    return {
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_feed_forward_length": config.get("shared_expert_intermediate_size"),
    }


def _granite(config: Config) -> Keys:
    return _llama({**config, "head_dim": None}) | {
        "attention.key_length": None,
        "attention.value_length": None,
        "attention.scale": float(config["attention_multiplier"]),
        "embedding_scale": float(config["embedding_multiplier"]),
        "residual_scale": float(config["residual_multiplier"]),
        "logit_scale": float(config["logits_scaling"]),
        "expert_shared_feed_forward_length": config.get("shared_intermediate_size"),
    }


def _llama4(config: Config) -> Keys:
    whole = all(kind == "full_attention" for kind in config["layer_types"])
    return _llama(config) | {
        "feed_forward_length": config["intermediate_size_mlp"],
        "interleave_moe_layer_step": config["interleave_moe_layer_step"],
        "expert_feed_forward_length": config["intermediate_size"],
        "attention.sliding_window": 0 if whole else None,
    }


def _ministral3(config: Config) -> Keys:
    rope = config["rope_parameters"]
    return _llama(config) | {
        "rope.scaling.yarn_log_multiplier": float(rope["mscale_all_dim"]),
        "attention.temperature_scale": float(rope["llama_4_scaling_beta"]),
    }


def _sliding(config: Config) -> Keys:
    if config.get("sliding_window") is None:
        return {}
    pattern = [kind == "sliding_attention" for kind in config["layer_types"]]
    return {
        "attention.sliding_window": config["sliding_window"],
        "attention.sliding_window_pattern": pattern,
    }


def _cohere2(config: Config) -> Keys:
    return {
        "logit_scale": float(config["logit_scale"]),
        "attention.sliding_window": config["sliding_window"],
        "rope.dimension_count": config["hidden_size"] // config["num_attention_heads"],
    }


def _nemotron(config: Config) -> Keys:
    part = config["rope_parameters"]["partial_rotary_factor"]
    rotated = int(part * config["hidden_size"]) // config["num_attention_heads"]
    return {
        "attention.layer_norm_rms_epsilon": None,
        "attention.layer_norm_epsilon": float(config["norm_eps"]),
        "rope.dimension_count": rotated,
    }


def _hunyuan(config: Config) -> Keys:
    rope, width = config["rope_parameters"], _width(config)
    stretched = rope["rope_theta"] * rope["alpha"] ** (width / (width - 2))
    return {"rope.freq_base": float(stretched), "rope.scaling.type": "none"}


def _ernie_moe(config: Config) -> Keys:
    return {
        "expert_count": config["moe_num_experts"],
        "expert_used_count": config["moe_k"],
        "interleave_moe_layer_step": config["moe_layer_interval"],
        "leading_dense_block_count": config["moe_layer_start_index"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config["moe_num_shared_experts"],
        "expert_shared_feed_forward_length": config["moe_intermediate_size"]
        * config["moe_num_shared_experts"],
    }


def _gpt_oss(config: Config) -> Keys:
    return {
        "attention.sliding_window": config["sliding_window"],
        "expert_feed_forward_length": config["intermediate_size"],
    }


def _corrected(config: Config) -> Keys:
    return {
        "expert_count": config["n_routed_experts"],
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "expert_shared_count": config["n_shared_experts"],
        "expert_weights_scale": float(config["routed_scaling_factor"]),
        "expert_weights_norm": bool(config["norm_topk_prob"]),
        "leading_dense_block_count": config.get("first_k_dense_replace"),
    }


def _glm4moe(config: Config) -> Keys:
    return _partial(config) | _corrected(config) | {"expert_gating_func": 2}


def _minimax(config: Config) -> Keys:
    return {
        "rope.dimension_count": _partial(config)["rope.dimension_count"],
        "expert_gating_func": 2,
        "expert_feed_forward_length": config["intermediate_size"],
    }


def _deepseek(config: Config) -> Keys:
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    given = config["rope_parameters"]
    found = {
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": config["q_lora_rank"],
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rope,
        "attention.value_length": rank,
        "attention.key_length_mla": config["qk_nope_head_dim"] + rope,
        "attention.value_length_mla": config["v_head_dim"],
        "rope.dimension_count": rope,
        "expert_gating_func": 2 if config["model_type"] == "deepseek_v3" else 1,
    }
    if given.get("mscale_all_dim") is not None:
        found["rope.scaling.yarn_log_multiplier"] = 0.1 * given["mscale_all_dim"]
    return found | _corrected(config)


def _attends(config: Config) -> list[int]:
    heads = config["num_key_value_heads"]
    return [heads if k.split("_")[-1] == "attention" and k != "linear_attention" else 0
            for k in config["layer_types"]]  # fmt: skip


def _lfm2(config: Config) -> Keys:
    inner = config["intermediate_size"]
    if config["block_auto_adjust_ff_dim"]:
        multiple = config["block_multiple_of"]
        inner = int(config["block_ffn_dim_multiplier"] * int(2 * inner / 3))
        inner = -(-inner // multiple) * multiple
    return _short(config) | {"feed_forward_length": inner}


def _short(config: Config) -> Keys:
    return {
        "attention.head_count_kv": _attends(config),
        "shortconv.l_cache": config["conv_L_cache"],
        "attention.layer_norm_rms_epsilon": float(config["norm_eps"]),
    }


def _lfm2moe(config: Config) -> Keys:
    return _short(config) | {
        "expert_feed_forward_length": config["moe_intermediate_size"],
        "leading_dense_block_count": config["num_dense_layers"],
        "expert_gating_func": 2,
    }


def _ssm(config: Config, inner: int, heads: int, state: int, groups: int, taps: int) -> Keys:
    return {
        "ssm.conv_kernel": taps,
        "ssm.state_size": state,
        "ssm.group_count": groups,
        "ssm.inner_size": inner,
        "ssm.time_step_rank": heads,
    }


def _mamba2(config: Config) -> Keys:
    inner = config["expand"] * config["hidden_size"]
    heads, groups = inner // config["head_dim"], config["n_groups"]
    return _ssm(config, inner, heads, config["state_size"], groups, config["conv_kernel"]) | {
        "context_length": 1 << 20,
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "attention.key_length": None,
        "attention.value_length": None,
        "attention.layer_norm_rms_epsilon": float(config["layer_norm_epsilon"]),
    }


def _mamba_of(config: Config, inner: int) -> Keys:
    return _ssm(
        config,
        inner,
        config["mamba_n_heads"],
        config["mamba_d_state"],
        config["mamba_n_groups"],
        config["mamba_d_conv"],
    )


def _granitehybrid(config: Config) -> Keys:
    inner = config["mamba_expand"] * config["hidden_size"]
    return _granite(config) | _mamba_of(config, inner) | {
        "attention.head_count_kv": _attends(config),
        "rope.scaling.finetuned": config["position_embedding_type"] == "rope",
        "rope.dimension_count": None,
    }  # fmt: skip


def _falcon_h1(config: Config) -> Keys:
    return _mamba_of(config, config["mamba_d_ssm"])


def _nemotron_h(config: Config) -> Keys:
    kinds = config["layers_block_type"]
    other = "moe" if "moe" in kinds else "mlp"
    inner = config["moe_intermediate_size" if other == "moe" else "intermediate_size"]
    heads = config["mamba_num_heads"]
    found = _ssm(
        config,
        heads * config["mamba_head_dim"],
        heads,
        config["ssm_state_size"],
        config["n_groups"],
        config["conv_kernel"],
    ) | {
        "block_count": len(kinds),
        "attention.head_count_kv": [
            config["num_key_value_heads"] if k == "full_attention" else 0 for k in kinds
        ],
        "feed_forward_length": [inner if k == other else 0 for k in kinds],
        "attention.layer_norm_rms_epsilon": float(config["layer_norm_epsilon"]),
        "rope.scaling.finetuned": False,
    }
    if other == "mlp":
        none = ("expert_count", "expert_used_count", "expert_group_count")
        return found | dict.fromkeys((*none, "expert_group_used_count"))
    return found | _corrected(config) | {
        "expert_shared_feed_forward_length": config["moe_shared_expert_intermediate_size"],
        "moe_latent_size": config.get("moe_latent_size"),
        "leading_dense_block_count": None,
    }  # fmt: skip


def _delta(config: Config) -> Keys:
    heads = config["linear_num_value_heads"]
    found = _ssm(
        config,
        heads * config["linear_value_head_dim"],
        heads,
        config["linear_key_head_dim"],
        config["linear_num_key_heads"],
        config["linear_conv_kernel_dim"],
    )
    found |= _partial(config)
    found["full_attention_interval"] = config["layer_types"].index("full_attention") + 1
    return found | (_experts(config) if config.get("num_experts") else {})


MORE: dict[str, Callable[[Config], Keys]] = {
    **dict.fromkeys(("llama", "smollm3"), _llama),
    "mistral": _mistral,
    "mixtral": _mistral,
    "llama4_text": _llama4,
    "ministral3": _ministral3,
    **dict.fromkeys(("gemma2", "gemma3_text", "phi3"), _gemma2),
    "gemma3n_text": _gemma3n,
    "gemma4_text": _gemma4,
    **dict.fromkeys(("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text"), _experts),
    **dict.fromkeys(("granite", "granitemoe", "granitemoeshared"), _granite),
    **dict.fromkeys(("olmo3", "exaone4"), _sliding),
    "cohere2": _cohere2,
    "glm4": _partial,
    "nemotron": _nemotron,
    "hunyuan_v1_dense": _hunyuan,
    "ernie4_5_moe": _ernie_moe,
    "gpt_oss": _gpt_oss,
    "glm4_moe": _glm4moe,
    "minimax_m2": _minimax,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), _deepseek),
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2moe,
    "mamba2": _mamba2,
    "granitemoehybrid": _granitehybrid,
    "falcon_h1": _falcon_h1,
    "nemotron_h": _nemotron_h,
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _delta),
}
