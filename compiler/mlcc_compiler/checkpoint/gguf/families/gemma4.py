"""Gemma 4: heads of two widths, shared keys and values, and an embedding for each layer."""

from __future__ import annotations

from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.gguf.family import LAYER, OUTER, POST_NORMS, Config, Family
from mlcc_compiler.checkpoint.gguf.keys import Keys

_PER_LAYER = "per_layer_token_embd.weight"
_STILL = 1e20
"""A frequency that is divided by as much does not turn."""


def _gemma4(keys: Keys, config: Config) -> None:
    """No key says that layers with a window see images both ways: those of the models do that have
    no embedding for each layer (26B, 31B)."""
    if config.get("num_experts"):
        config["enable_moe_block"] = True
        config["top_k_experts"] = config.pop("num_experts_per_tok", 0)
    types = _types(keys, config)
    full = types.index("full_attention") if "full_attention" in types else -1
    narrow = keys.whole("attention.key_length_swa")
    inputs = keys.largest("embedding_length_per_layer_input")
    for key in ("attention.value_length_swa", "rope.dimension_count_swa"):
        if keys.whole(key, narrow) != narrow:
            raise keys.refuse(key, f"as long as keys, {narrow}")
    config |= {
        "model_type": "gemma4_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "layer_types": types,
        "global_head_dim": config["head_dim"],
        "head_dim": narrow,
        "num_kv_shared_layers": keys.largest("attention.shared_kv_layers"),
        "attention_k_eq_v": f"blk.{full}.attn_v.weight" not in keys.shapes,
        "hidden_size_per_layer_input": inputs,
        "rope_parameters": _ropes(keys, config),
        "use_bidirectional_attention": None if inputs else "vision",
        **_sizes(keys, config, types),
    }
    if _PER_LAYER in keys.shapes:
        config["vocab_size_per_layer_input"] = keys.shapes[_PER_LAYER][0]


def _types(keys: Keys, config: Config) -> list[str]:
    layers = config["num_hidden_layers"]
    slides = keys.each("attention.sliding_window_pattern", layers)
    return ["sliding_attention" if each else "full_attention" for each in slides]


def _sizes(keys: Keys, config: Config, types: list[str]) -> dict[str, Any]:
    """Widths of MLPs, which are doubled in layers that share keys, and numbers of key heads, which
    differ by type."""
    layers = len(types)
    inner = keys.each("feed_forward_length", layers)
    heads = keys.each("attention.head_count_kv", layers)
    by_type = {
        kind: {count for count, own in zip(heads, types, strict=True) if own == kind}
        for kind in ("sliding_attention", "full_attention")
    }
    if any(len(counts) > 1 for counts in by_type.values()):
        raise keys.refuse("attention.head_count_kv", "the same in all layers of a type")
    narrow, wide = (next(iter(counts), heads[0]) for counts in by_type.values())
    if set(inner) - {inner[0], 2 * inner[0]}:
        raise keys.refuse("feed_forward_length", "the first layer's, or twice as much")
    return {
        "intermediate_size": inner[0],
        "use_double_wide_mlp": inner[-1] != inner[0],
        "num_key_value_heads": narrow,
        "num_global_key_value_heads": wide,
    }


def _ropes(keys: Keys, config: Config) -> dict[str, Any]:
    """Layers with all tokens turn the first frequencies only: the others are divided by so much
    that they stand still."""
    divisors = (config.pop("rope_scaling") or {}).get("short_factor", [1.0])
    turning = sum(divisor == 1.0 for divisor in divisors)
    if not all(each == 1.0 or each >= _STILL for each in divisors):
        raise UnsupportedError(
            "the GGUF file's rope_freqs.weight has divisors other than 1 and those of frequencies "
            "that stand still, which is not supported; use the checkpoint of Hugging Face"
        )
    return {
        "sliding_attention": {
            "rope_type": "default",
            "rope_theta": keys.number("rope.freq_base_swa", 10000.0),
        },
        "full_attention": {
            "rope_type": "proportional",
            "partial_rotary_factor": turning / len(divisors),
            "rope_theta": config["rope_theta"],
        },
    }


FAMILIES = {
    "gemma4": Family(
        {
            **LAYER,
            **POST_NORMS,
            "ffn_norm": "pre_feedforward_layernorm",
            "inp_gate": "per_layer_input_gate",
            "proj": "per_layer_projection",
            "post_norm": "post_per_layer_input_norm",
            "layer_output_scale.weight": "layer_scalar",
            "ffn_gate_inp": "moe.gate",
            "ffn_gate_inp.scale": "moe.scale",
            "ffn_down_exps.scale": "moe.per_expert_scale",
            "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
            "post_ffw_norm_1": "post_feedforward_layernorm_1",
            "post_ffw_norm_2": "post_feedforward_layernorm_2",
        },
        _gemma4,
        outer={
            **OUTER,
            "per_layer_token_embd": "model.embed_tokens_per_layer",
            "per_layer_model_proj": "model.per_layer_model_projection",
            "per_layer_proj_norm": "model.per_layer_projection_norm",
        },
        experts="moe.experts",
        per_layer=True,
    ),
}
