"""Decoders whose norms differ from Llama's in kind or position: Gemma to Nemotron."""

from __future__ import annotations

import numpy as np

from mlcc.errors import UnsupportedError
from mlcc_compiler.checkpoint.gguf.families.llamas import biases
from mlcc_compiler.checkpoint.gguf.family import (
    ATTENTION,
    LAYER,
    MLP,
    POST_NORMS,
    Config,
    Family,
    JoinedTensor,
)
from mlcc_compiler.checkpoint.gguf.keys import Keys

_GEMMA_27B = {"gemma2": 46, "gemma3": 62}
"""Number of layers of the two models whose queries are scaled by hidden_size / heads instead of
head_dim.
"""
_EVERY = 4
"""Interval of full-attention layers in Cohere 2, EXAONE 4 and OLMo 3."""


def _gemma1(keys: Keys, config: Config) -> None:
    config |= {"model_type": "gemma", "hidden_act": "gelu_pytorch_tanh"}


def _gemma(keys: Keys, config: Config) -> None:
    architecture = keys.architecture
    width, heads = config["head_dim"], config["num_attention_heads"]
    is_27b = config["num_hidden_layers"] == _GEMMA_27B[architecture]
    config["query_pre_attn_scalar"] = config["hidden_size"] // heads if is_27b else width
    config |= {"model_type": architecture, "hidden_activation": "gelu_pytorch_tanh"}


def _gemma3(keys: Keys, config: Config) -> None:
    _gemma(keys, config)
    config["model_type"] = "gemma3_text"
    config["rope_local_base_freq"] = keys.number("rope.freq_base_swa", 10000.0)
    if (types := sliding_types(keys, config)) is not None:
        config["layer_types"] = types
    else:
        config["sliding_window_pattern"] = keys.whole("attention.sliding_window_pattern", 6)


def sliding_types(keys: Keys, config: Config) -> list[str] | None:
    """`layer_types`, if a file gives them per layer."""
    pattern = keys.get("attention.sliding_window_pattern")
    if not isinstance(pattern, np.ndarray):
        return None
    if len(pattern) != config["num_hidden_layers"]:
        raise keys.refuse("attention.sliding_window_pattern", "one for each layer")
    return ["sliding_attention" if slides else "full_attention" for slides in pattern]


def _windows(keys: Keys, config: Config) -> bool:
    """If layers slide: which ones, by the file or all but every fourth."""
    if not config.get("sliding_window"):
        config["sliding_window"] = None
        return False
    types = sliding_types(keys, config)
    layers = range(config["num_hidden_layers"])
    config["layer_types"] = types or [
        "sliding_attention" if (i + 1) % _EVERY else "full_attention" for i in layers
    ]
    return True


def _phi3(keys: Keys, config: Config) -> None:
    original = keys.original_context()
    config["original_max_position_embeddings"] = original or config["max_position_embeddings"]
    config["model_type"] = "phi3"
    if not config.get("sliding_window"):
        config["sliding_window"] = None


def _olmo2(keys: Keys, config: Config) -> None:
    """OLMo 3 has sliding layers; rope scaling then applies to full-attention layers only."""
    biases(keys, config)
    config["model_type"] = "olmo3" if _windows(keys, config) else "olmo2"
    if keys.has("rope.freq_base_swa"):
        base = keys.number("rope.freq_base_swa")
        full = config["rope_scaling"] or {"rope_type": "default"}
        config["rope_parameters"] = {
            "full_attention": full | {"rope_theta": config["rope_theta"]},
            "sliding_attention": {"rope_type": "default", "rope_theta": base},
        }


def _exaone4(keys: Keys, config: Config) -> None:
    _windows(keys, config)
    config["model_type"] = "exaone4"


def _cohere2(keys: Keys, config: Config) -> None:
    _windows(keys, config)
    config |= {
        "model_type": "cohere2",
        "layer_norm_eps": keys.number("attention.layer_norm_epsilon"),
        "logit_scale": keys.number("logit_scale"),
        "attention_bias": "attn_q.bias" in keys.parts,
    }


def _glm4(keys: Keys, config: Config) -> None:
    if keys.has("rope.dimension_sections") and np.any(keys.get("rope.dimension_sections")):
        raise UnsupportedError(
            "a GGUF file of GLM-4 that sees images ('glm4.rope.dimension_sections') is not "
            "supported; use one of GLM-4-0414, or the checkpoint of Hugging Face"
        )
    config.setdefault("partial_rotary_factor", 1.0)
    config |= {"model_type": "glm4", "attention_bias": "attn_q.bias" in keys.parts}


def _starcoder2(keys: Keys, config: Config) -> None:
    """llama.cpp ignores its window."""
    config |= {
        "model_type": "starcoder2",
        "norm_epsilon": keys.number("attention.layer_norm_epsilon"),
        "hidden_act": "gelu_pytorch_tanh",
        "sliding_window": None,
        "use_bias": "attn_q.bias" in keys.parts,
    }


def _nemotron(keys: Keys, config: Config) -> None:
    biases(keys, config)
    config.setdefault("partial_rotary_factor", 1.0)
    config |= {
        "model_type": "nemotron",
        "norm_eps": keys.number("attention.layer_norm_epsilon"),
    }


def _hunyuan(keys: Keys, config: Config) -> None:
    """The file's base already includes `alpha`."""
    biases(keys, config)
    config["model_type"] = "hunyuan_v1_dense"


def _gpt_oss(keys: Keys, config: Config) -> None:
    """Every second layer slides, starting with the first. YaRN's ramp ends are not rounded, which
    no key says; llama.cpp rounds them."""
    config |= {
        "model_type": "gpt_oss",
        "num_local_experts": config["num_experts"],
        "intermediate_size": config["moe_intermediate_size"],
        "attention_bias": "attn_q.bias" in keys.parts,
    }
    if config["rope_scaling"] is None:
        config["rope_parameters"] = {"rope_type": "default"}
    else:
        config["rope_scaling"]["truncate"] = False


_PLAIN = {part: name for part, name in LAYER.items() if part != "ffn_gate"}
_GEMMA = {**LAYER, **POST_NORMS, "ffn_norm": "pre_feedforward_layernorm"}
_NORMS_BEHIND = {**ATTENTION, **MLP, **POST_NORMS}
_EXPERT_BIASES = (
    JoinedTensor(("ffn_gate_exps.bias", "ffn_up_exps.bias"), "mlp.gate_up_bias", flat=True),
    JoinedTensor(("ffn_down_exps.bias",), "mlp.down_bias", flat=True),
)

FAMILIES = {
    "gemma": Family(LAYER, _gemma1, norm_offset=1.0),
    "gemma2": Family(_GEMMA, _gemma, norm_offset=1.0),
    "gemma3": Family(_GEMMA, _gemma3, norm_offset=1.0),
    "phi3": Family(
        {**LAYER, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}, _phi3
    ),
    "olmo2": Family(_NORMS_BEHIND, _olmo2),
    "exaone4": Family(_NORMS_BEHIND, _exaone4),
    "cohere2": Family(LAYER, _cohere2),
    "glm4": Family(
        {
            **LAYER,
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
            "ffn_up": "mlp.gate_up_proj",
        },
        _glm4,
    ),
    "starcoder2": Family(
        {**_PLAIN, "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
        _starcoder2,
    ),
    "nemotron": Family(_PLAIN, _nemotron, norm_offset=1.0),
    "hunyuan-dense": Family(
        {
            **LAYER,
            "attn_q_norm": "self_attn.query_layernorm",
            "attn_k_norm": "self_attn.key_layernorm",
        },
        _hunyuan,
    ),
    "gpt-oss": Family(
        {
            **LAYER,
            "post_attention_norm": "post_attention_layernorm",
            "attn_sinks.weight": "self_attn.sinks",
            "ffn_gate_inp": "mlp.gate",
        },
        _gpt_oss,
        joins=_EXPERT_BIASES,
    ),
}
