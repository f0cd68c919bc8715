"""Families with Mamba 2 mixers or short convolutions, mostly beside attention. The kind of a layer
follows from per-layer numbers of heads and widths, where 0 means absent.
"""

from __future__ import annotations

from mlcc_compiler.checkpoint.gguf.families.llamas import corrected, multipliers, routed
from mlcc_compiler.checkpoint.gguf.family import (
    ATTENTION,
    LAYER,
    OUTER,
    Config,
    Family,
    mixer_of,
    mlp_of,
    rotary_orders,
    shared_of,
)
from mlcc_compiler.checkpoint.gguf.keys import Keys

_BIAS_OF_CHOICE = "gate.e_score_correction_bias"


def _mamba(keys: Keys) -> Config:
    """The sizes of a mixer, by hybrids' config names."""
    inner, heads = keys.whole("ssm.inner_size"), keys.whole("ssm.time_step_rank")
    if inner % heads:
        raise keys.refuse("ssm.inner_size", f"a multiple of {heads} heads")
    return {
        "mamba_n_heads": heads,
        "mamba_d_head": inner // heads,
        "mamba_n_groups": keys.whole("ssm.group_count", 1),
        "mamba_d_state": keys.whole("ssm.state_size"),
        "mamba_d_conv": keys.whole("ssm.conv_kernel"),
        "mamba_conv_bias": "ssm_conv1d.bias" in keys.parts,
        "mamba_proj_bias": "ssm_in.bias" in keys.parts,
    }


def _mamba2(keys: Keys, config: Config) -> None:
    numbers, hidden = _mamba(keys), config["hidden_size"]
    inner = keys.whole("ssm.inner_size")
    if inner % hidden:
        raise keys.refuse("ssm.inner_size", f"a multiple of {hidden}")
    config |= {
        "model_type": "mamba2",
        "num_heads": numbers["mamba_n_heads"],
        "head_dim": numbers["mamba_d_head"],
        "n_groups": numbers["mamba_n_groups"],
        "state_size": numbers["mamba_d_state"],
        "conv_kernel": numbers["mamba_d_conv"],
        "expand": inner // hidden,
        "use_conv_bias": numbers["mamba_conv_bias"],
        "use_bias": numbers["mamba_proj_bias"],
        "layer_norm_epsilon": config["rms_norm_eps"],
    }


def _attends(keys: Keys, config: Config) -> list[bool]:
    layers = config["num_hidden_layers"]
    return [heads > 0 for heads in keys.each("attention.head_count_kv", layers)]


def _granitehybrid(keys: Keys, config: Config) -> None:
    multipliers(keys, config)
    shared = keys.largest("expert_shared_feed_forward_length") or config["intermediate_size"]
    transposed = keys.flag("rope.scaling.finetuned", True)
    inner, hidden = keys.whole("ssm.inner_size"), config["hidden_size"]
    if inner % hidden:
        raise keys.refuse("ssm.inner_size", f"a multiple of {hidden}")
    config |= {
        **_mamba(keys),
        "model_type": "granitemoehybrid",
        "mamba_expand": inner // hidden,
        "layer_types": ["attention" if a else "mamba" for a in _attends(keys, config)],
        "num_local_experts": config.get("num_experts", 0),
        "shared_intermediate_size": shared,
        "position_embedding_type": "rope" if transposed else None,
        "attention_bias": "attn_q.bias" in keys.parts,
    }


def _falcon_h1(keys: Keys, config: Config) -> None:
    """Its multipliers are merged into the weights. llama.cpp normalises after gating."""
    config |= {
        **_mamba(keys),
        "model_type": "falcon_h1",
        "mamba_d_ssm": keys.whole("ssm.inner_size"),
        "mamba_rms_norm": "ssm_norm.weight" in keys.parts,
        "mamba_norm_before_gate": False,
        "projectors_bias": "ssm_out.bias" in keys.parts,
        "attention_bias": "attn_q.bias" in keys.parts,
        "mlp_bias": "ffn_down.bias" in keys.parts,
    }


def _nemotron_h(keys: Keys, config: Config) -> None:
    layers, attends = config["num_hidden_layers"], _attends(keys, config)
    widths = keys.each("feed_forward_length", layers)
    other = "moe" if config.get("num_experts") else "mlp"
    kinds = ["attention" if attends[i] else other if widths[i] else "mamba" for i in range(layers)]
    numbers = _mamba(keys)
    config |= {
        "model_type": "nemotron_h",
        "layers_block_type": kinds,
        "layer_norm_epsilon": config["rms_norm_eps"],
        "mamba_num_heads": numbers["mamba_n_heads"],
        "mamba_head_dim": numbers["mamba_d_head"],
        "n_groups": numbers["mamba_n_groups"],
        "ssm_state_size": numbers["mamba_d_state"],
        "conv_kernel": numbers["mamba_d_conv"],
        "use_conv_bias": numbers["mamba_conv_bias"],
        "use_bias": numbers["mamba_proj_bias"],
        "mlp_bias": "ffn_down.bias" in keys.parts,
    }
    if other == "moe":
        routed(keys, "sigmoid")
        config |= corrected(keys, config) | {
            "moe_shared_expert_intermediate_size": keys.largest(
                "expert_shared_feed_forward_length"
            ),
            "moe_latent_size": keys.largest("moe_latent_size") or None,
        }


def _lfm2(keys: Keys, config: Config) -> None:
    config |= {
        "model_type": "lfm2",
        "norm_eps": config["rms_norm_eps"],
        "conv_L_cache": keys.whole("shortconv.l_cache"),
        "conv_bias": "shortconv.conv.bias" in keys.parts,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["full_attention" if a else "conv" for a in _attends(keys, config)],
    }


def _lfm2moe(keys: Keys, config: Config) -> None:
    _lfm2(keys, config)
    routed(keys, "sigmoid")
    config |= {
        "model_type": "lfm2_moe",
        "num_dense_layers": keys.largest("leading_dense_block_count"),
        "use_expert_bias": "exp_probs_b.bias" in keys.parts,
        "norm_topk_prob": True,
        "routed_scaling_factor": keys.number("expert_weights_scale", 0.0) or 1.0,
    }


_SHORT = {
    **ATTENTION,
    **mlp_of("feed_forward"),
    "attn_norm": "operator_norm",
    "ffn_norm": "ffn_norm",
    "shortconv.conv": "conv.conv",
    "shortconv.in_proj": "conv.in_proj",
    "shortconv.out_proj": "conv.out_proj",
    "ffn_gate_inp": "feed_forward.gate",
    "exp_probs_b.bias": f"feed_forward.{_BIAS_OF_CHOICE}",
}
_OUTER_LFM2 = {**OUTER, "token_embd_norm": "model.norm"}
_NAMES_OF_NEMOTRON = {
    **{part: name.replace("self_attn", "mixer") for part, name in ATTENTION.items()},
    **mlp_of("mixer"),
    **shared_of("mixer.shared_experts"),
    **mixer_of("mixer"),
    "attn_norm": "norm",
    "ffn_gate_inp": "mixer.gate",
    "ffn_latent_down": "mixer.fc1_latent_proj",
    "ffn_latent_up": "mixer.fc2_latent_proj",
    "exp_probs_b.bias": f"mixer.{_BIAS_OF_CHOICE}",
}
_NEMOTRON = Family(
    _NAMES_OF_NEMOTRON,
    _nemotron_h,
    orders=rotary_orders,
    experts="mixer.experts",
    per_layer=True,
)
FAMILIES = {
    "mamba2": Family({**mixer_of("mixer"), "attn_norm": "norm"}, _mamba2, per_layer=True),
    "granitehybrid": Family(
        {
            **LAYER,
            **mlp_of("shared_mlp"),
            **shared_of("shared_mlp"),
            **mixer_of("mamba"),
            "ffn_gate_inp": "mlp.gate",
        },
        _granitehybrid,
        orders=rotary_orders,
        per_layer=True,
    ),
    "falcon-h1": Family(
        {
            **LAYER,
            **mlp_of("feed_forward"),
            **mixer_of("mamba"),
            "ffn_norm": "pre_ff_layernorm.weight",  # as files have it, without its kind
            "ffn_norm.weight": "pre_ff_layernorm.weight",
        },
        _falcon_h1,
    ),
    "nemotron_h": _NEMOTRON,
    "nemotron_h_moe": _NEMOTRON,
    "lfm2": Family(_SHORT, _lfm2, outer=_OUTER_LFM2, per_layer=True),
    "lfm2moe": Family(
        _SHORT, _lfm2moe, outer=_OUTER_LFM2, experts="feed_forward.experts", per_layer=True
    ),
}
