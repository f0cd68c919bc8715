"""Llama and families of the same layers: attention, an MLP or mixture, with pre-norms."""

from __future__ import annotations

from typing import Any

from mlcc_compiler.checkpoint.gguf.family import LAYER, Config, Family, rotary_orders, shared_of
from mlcc_compiler.checkpoint.gguf.keys import Keys

_ROUTED = {**LAYER, "ffn_gate_inp": "mlp.gate"}
_MAVERICKS_EXPERTS = 128


def biases(keys: Keys, config: Config) -> None:
    """Which projections have biases follows from the tensors alone."""
    config["attention_bias"] = "attn_q.bias" in keys.parts
    config["mlp_bias"] = "ffn_down.bias" in keys.parts


def _llama(keys: Keys, config: Config) -> None:
    """Llama, Mistral (by its window), and with experts Mixtral."""
    if "partial_rotary_factor" in config:
        raise keys.refuse("rope.dimension_count", f"the width of a head, {config['head_dim']}")
    biases(keys, config)
    if config.get("num_experts"):
        config |= {"model_type": "mixtral", "num_local_experts": config["num_experts"]}
    elif config.get("sliding_window"):
        config["model_type"] = "mistral"
    else:
        config["model_type"] = "llama"


def _mistral3(keys: Keys, config: Config) -> None:
    """Ministral 3. YaRN's temperature cancels out, as with `mscale` 1."""
    beta = keys.number("attention.temperature_scale", 0.0)
    config["model_type"] = "ministral3" if beta else "mistral"
    config.setdefault("sliding_window", None)
    if config["rope_scaling"] is not None and (all_dim := log_multiplier(keys)):
        config["rope_scaling"] |= {"mscale": 1.0, "mscale_all_dim": all_dim}
    if beta:
        if config["rope_scaling"] is None:
            raise keys.refuse("rope.scaling.type", "yarn, for queries that grow with positions")
        config["rope_scaling"]["llama_4_scaling_beta"] = beta


def log_multiplier(keys: Keys) -> float:
    """YaRN's `mscale_all_dim`; 0 if not given."""
    found: float = keys.number("rope.scaling.yarn_log_multiplier", 0.0)
    return found


def _smollm3(keys: Keys, config: Config) -> None:
    """Every fourth layer has no rope, which no key says."""
    biases(keys, config)
    config |= {"model_type": "smollm3", "no_rope_layer_interval": 4, "use_sliding_window": False}


def multipliers(keys: Keys, config: Config) -> None:
    """Granite's multipliers; llama.cpp treats an absent one as 1."""
    width = config["head_dim"]
    config["attention_multiplier"] = keys.number("attention.scale", 0.0) or width**-0.5
    config["embedding_multiplier"] = keys.number("embedding_scale", 0.0) or 1.0
    config["residual_multiplier"] = keys.number("residual_scale", 0.0) or 1.0
    config["logits_scaling"] = keys.number("logit_scale", 0.0) or 1.0


def _granite(keys: Keys, config: Config) -> None:
    if not keys.flag("rope.scaling.finetuned", True):
        raise keys.refuse("rope.scaling.finetuned", "true, for a Granite all of whose layers turn")
    multipliers(keys, config)
    biases(keys, config)
    config["model_type"] = "granite"
    if config.get("num_experts"):
        _granite_experts(keys, config)


def _granite_experts(keys: Keys, config: Config) -> None:
    shared = keys.largest("expert_shared_feed_forward_length")
    config |= {
        "model_type": "granitemoeshared" if shared else "granitemoe",
        "num_local_experts": config["num_experts"],
        "shared_intermediate_size": shared,
    }


def _qwen(keys: Keys, config: Config) -> None:
    """llama.cpp has no window here either."""
    biases(keys, config)
    config |= {"model_type": keys.architecture, "use_sliding_window": False}


def image_rope(keys: Keys, config: Config, interleaved: bool = False) -> None:
    """M-RoPE's sections: how many frequencies turn by time, row and column of an image."""
    sections = keys.each("rope.dimension_sections", 3)
    rope = config["rope_scaling"] or {"rope_type": "default"}
    config["rope_scaling"] = {**rope, "mrope_section": sections, "mrope_interleaved": interleaved}


def _qwen2vl(keys: Keys, config: Config) -> None:
    """Qwen2-VL and Qwen2.5-VL, whose text is the same."""
    biases(keys, config)
    config |= {"model_type": "qwen2_vl_text", "use_sliding_window": False}
    image_rope(keys, config)


def _qwen3vl(keys: Keys, config: Config) -> None:
    """The layers that read further features of an image are as many as the tower's."""
    _ = keys.get("n_deepstack_layers")
    if config.get("num_experts"):
        _qwen3moe(keys, config)
        config["model_type"] = "qwen3_vl_moe_text"
    else:
        biases(keys, config)
        config |= {"model_type": "qwen3_vl_text", "use_sliding_window": False}
    image_rope(keys, config, interleaved=True)


def _qwen2moe(keys: Keys, config: Config) -> None:
    """Old files omit the experts' widths, which then follow from the MLP's."""
    whole = config["intermediate_size"]
    config.setdefault("moe_intermediate_size", whole // config["num_experts_per_tok"])
    shared = keys.largest("expert_shared_feed_forward_length") or whole
    config |= {
        "model_type": "qwen2_moe",
        "norm_topk_prob": False,
        "qkv_bias": "attn_q.bias" in keys.parts,
        "shared_expert_intermediate_size": shared,
        "use_sliding_window": False,
    }


def _qwen3moe(keys: Keys, config: Config) -> None:
    config |= {"model_type": "qwen3_moe", "norm_topk_prob": True, "use_sliding_window": False}
    config.setdefault("intermediate_size", config.get("moe_intermediate_size"))


def _llama4(keys: Keys, config: Config) -> None:
    """llama.cpp hard-codes which layers turn, and tells Maverick, whose queries and keys are not
    normed, by its 128 experts. A window of 0 stands for attention to all tokens in all layers,
    each of which turns."""
    biases(keys, config)
    experts, layers = config.setdefault("num_experts", 0), config["num_hidden_layers"]
    whole = config.pop("sliding_window", None) == 0
    config |= {
        "model_type": "llama4_text",
        "intermediate_size_mlp": config["intermediate_size"],
        "intermediate_size": config.get("moe_intermediate_size", config["intermediate_size"]),
        "num_local_experts": experts,
        "use_qk_norm": experts != _MAVERICKS_EXPERTS,
        "attn_temperature_tuning": not whole,
        "no_rope_layers": [int(whole or (i + 1) % 4 != 0) for i in range(layers)],
    }
    if whole:
        config["attention_chunk_size"] = None
    step = keys.largest("interleave_moe_layer_step") or 1
    config["moe_layers"] = list(range(step - 1, layers, step)) if experts else []
    routed(keys, "sigmoid")


def _olmoe(keys: Keys, config: Config) -> None:
    config |= {"model_type": "olmoe", "norm_topk_prob": False}


def _minimax_m2(keys: Keys, config: Config) -> None:
    if "partial_rotary_factor" in config:
        config["rotary_dim"] = keys.whole("rope.dimension_count")
    inner = config.get("moe_intermediate_size", config.get("intermediate_size"))
    config |= {"model_type": "minimax_m2", "intermediate_size": inner}
    config["num_local_experts"] = config["num_experts"]
    routed(keys, "sigmoid")


def _ernie(keys: Keys, config: Config) -> None:
    biases(keys, config)
    config |= {"model_type": "ernie4_5", "use_bias": "attn_q.bias" in keys.parts}


def _ernie_moe(keys: Keys, config: Config) -> None:
    config |= {
        "model_type": "ernie4_5_moe",
        "moe_num_experts": config["num_experts"],
        "moe_k": config["num_experts_per_tok"],
        "moe_layer_interval": keys.whole("interleave_moe_layer_step", 1),
        "moe_layer_start_index": keys.largest("leading_dense_block_count"),
        "moe_num_shared_experts": keys.largest("expert_shared_count"),
        "use_bias": "attn_q.bias" in keys.parts,
    }
    _ = keys.get("expert_shared_feed_forward_length")  # wrong in files: shapes say it


def _glm4moe(keys: Keys, config: Config) -> None:
    routed(keys, "sigmoid")
    config.setdefault("partial_rotary_factor", 1.0)
    config |= {
        "model_type": "glm4_moe",
        "use_qk_norm": "attn_q_norm.weight" in keys.parts,
        "attention_bias": "attn_q.bias" in keys.parts,
        **corrected(keys, config),
    }


def corrected(keys: Keys, config: Config) -> dict[str, Any]:
    """Fields of mixtures after dense layers, with groups and shared experts."""
    return {
        "first_k_dense_replace": keys.largest("leading_dense_block_count"),
        "n_routed_experts": config["num_experts"],
        "n_shared_experts": keys.largest("expert_shared_count"),
        "routed_scaling_factor": keys.number("expert_weights_scale", 0.0) or 1.0,
        "norm_topk_prob": keys.flag("expert_weights_norm", False),
        "n_group": keys.largest("expert_group_count") or 1,
        "topk_group": keys.largest("expert_group_used_count") or 1,
    }


def routed(keys: Keys, wanted: str) -> None:
    """Raises CheckpointError if experts are scored differently."""
    number = {"softmax": 1, "sigmoid": 2}[wanted]
    if keys.number("expert_gating_func", number) not in (0, number):
        raise keys.refuse("expert_gating_func", f"{number} ({wanted})")


_BIAS_OF_CHOICE = {"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}
_MIXTRAL = {**_ROUTED, **shared_of("mlp.shared_expert")}
_BEHIND_DENSE = {**_ROUTED, **shared_of("mlp.shared_experts"), **_BIAS_OF_CHOICE}

FAMILIES = {
    "llama": Family(_ROUTED, _llama, orders=rotary_orders),
    "llama4": Family(_MIXTRAL, _llama4),
    "mistral3": Family(LAYER, _mistral3, orders=rotary_orders),
    "smollm3": Family(LAYER, _smollm3, orders=rotary_orders),
    "granite": Family(LAYER, _granite, orders=rotary_orders),
    "granitemoe": Family(_MIXTRAL, _granite, orders=rotary_orders),
    "qwen2": Family(LAYER, _qwen),
    "qwen3": Family(LAYER, _qwen),
    "qwen2moe": Family(
        {**_MIXTRAL, "ffn_gate_inp_shexp": "mlp.shared_expert_gate"},
        _qwen2moe,
    ),
    "qwen3moe": Family(_ROUTED, _qwen3moe),
    "qwen2vl": Family(LAYER, _qwen2vl),
    "qwen3vl": Family(LAYER, _qwen3vl),
    "qwen3vlmoe": Family(_ROUTED, _qwen3vl),
    "olmoe": Family(_ROUTED, _olmoe),
    "minimax-m2": Family({**_ROUTED, **_BIAS_OF_CHOICE}, _minimax_m2),
    "ernie4_5": Family(LAYER, _ernie),
    "ernie4_5-moe": Family(_BEHIND_DENSE, _ernie_moe),
    "glm4moe": Family(
        {**_BEHIND_DENSE, "post_attention_norm": "post_attention_layernorm"}, _glm4moe
    ),
}
