"""Converts GGUF's metadata to the config.json that `models.registry` reads, and generation
defaults.

Keys are llama.cpp's `ARCHITECTURE.*`. This file has what all families share; values that converters
omit because llama.cpp hard-codes them are added by the family's function (`families/`), with its
reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.checkpoint.gguf.families.table import FAMILIES
from mlcc_compiler.checkpoint.gguf.header import Value
from mlcc_compiler.checkpoint.gguf.keys import Keys, Shapes

Factors = Callable[[str], "list[float] | None"]
"""Reads the numbers of a frequency tensor; None if absent."""

_SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "attention.key_length": "head_dim",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_NEEDED = ("context_length", "embedding_length")
_BY_LAYER = {
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
}
"""Keys with a number per layer in families whose layers differ; the largest is used."""
_REALS = {
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
}  # or 0: there is none
_MAY_BE_NONE = ("expert_count", "expert_used_count", "expert_feed_forward_length")
_SAMPLING = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repetition_penalty",
    "xtc_probability": "xtc_probability",
    "mirostat": "mirostat",
}
"""Those that mlcc does not take from a file are named by the compile."""
_THETA = 10000.0
"""llama.cpp's default."""


def architecture_of(metadata: Mapping[str, Value], path: object) -> str:
    """`general.architecture`, if supported. Raises CheckpointError, UnsupportedError."""
    kind = metadata.get("general.type", "model")
    if not isinstance(kind, str) or kind != "model":
        raise UnsupportedError(
            f"{path}: is a GGUF file of type {str(kind)[:40]!r}, no model; give the model"
        )
    found = metadata.get("general.architecture")
    if not isinstance(found, str):
        raise CheckpointError(f"{path}: has no general.architecture; fetch the file again")
    if found not in FAMILIES:
        raise UnsupportedError(
            f"{path}: architecture {found[:40]!r} of GGUF is not supported; these are: "
            f"{', '.join(sorted(FAMILIES))}; where the checkpoint of Hugging Face is of a family "
            "that mlcc has, compile that"
        )
    return found


def config_of(
    metadata: Mapping[str, Value], architecture: str, shapes: Shapes, factors: Factors
) -> tuple[dict[str, Any], list[str]]:
    """A config.json, and notes about ignored keys. shapes: of the file's tensors.

    Raises CheckpointError (a key is missing or does not fit), UnsupportedError.
    """
    keys, family = Keys(metadata, architecture, shapes), FAMILIES[architecture]
    config = _sizes(keys, family.per_layer)
    config["vocab_size"] = shapes["token_embd.weight"][0]  # the key is wrong in some files
    config["tie_word_embeddings"] = "output.weight" not in shapes
    _ = keys.get("vocab_size")
    if keys.get("attention.causal") is False:
        raise UnsupportedError(f"a GGUF file of an encoder ({architecture}) is no chat model")
    config["rope_scaling"] = _rope(keys, config, factors) if "head_dim" in config else None
    family.config(keys, config)
    _check_heads(keys, config)
    return config, keys.unknown()


def _sizes(keys: Keys, per_layer: bool) -> dict[str, Any]:
    blocks, drafts = keys.whole("block_count"), keys.largest("nextn_predict_layers")
    if drafts >= blocks:
        raise keys.refuse("nextn_predict_layers", f"less than all of {blocks} layers")
    config: dict[str, Any] = {"num_hidden_layers": blocks - drafts}
    if drafts:
        config["num_nextn_predict_layers"] = drafts
    for key, name in _SIZES.items():
        if key in _MAY_BE_NONE and not keys.largest(key):
            continue
        if key in _NEEDED or keys.has(key):
            config[name] = keys.whole(key)
    for key, name in _BY_LAYER.items():
        size = keys.largest(key) if per_layer or not keys.has(key) else keys.whole(key)
        if size:
            config[name] = size
    for key, name in _REALS.items():
        if keys.has(key):
            config[name] = keys.number(key)
    config.setdefault("rope_theta", _THETA)
    if heads := config.get("num_attention_heads"):
        config.setdefault("num_key_value_heads", heads)
        config.setdefault("head_dim", config["hidden_size"] // heads)
    elif not per_layer:
        raise keys.refuse("attention.head_count", "a whole number above 0")
    return config


def _check_heads(keys: Keys, config: dict[str, Any]) -> None:
    """Refuse unsupported attention variants. Raises CheckpointError, UnsupportedError."""
    width = config.get("global_head_dim", config.get("head_dim", 0))
    if "kv_lora_rank" in config or not config.get("num_attention_heads"):
        return
    if keys.number("attention.value_length", width) != width:
        raise keys.refuse("attention.value_length", f"as long as keys, {width}")
    own = "attention_multiplier" in config
    if not own and keys.number("attention.scale", 0.0) not in (0.0, width**-0.5):
        raise UnsupportedError(
            f"'{keys.prefix}attention.scale' is not supported; use the checkpoint of Hugging Face"
        )


def generation_config_of(metadata: Mapping[str, Value]) -> dict[str, Any]:
    """A file's recommended sampling parameters and suppressed tokens, under Hugging Face's
    names."""
    found = {
        name: metadata[f"general.sampling.{key}"]
        for key, name in _SAMPLING.items()
        if f"general.sampling.{key}" in metadata
    }
    sound = {n: v for n, v in found.items() if isinstance(v, (int, float)) and np.isfinite(v)}
    suppressed = metadata.get("tokenizer.ggml.suppress_tokens")
    if isinstance(suppressed, np.ndarray) and suppressed.dtype.kind in "iu":
        return {**sound, "suppress_tokens": suppressed.tolist()}
    return sound


def _rope(keys: Keys, config: dict[str, Any], factors: Factors) -> dict[str, Any] | None:
    """`rope_scaling`, and in `config` the rotated share of a head."""
    rotated = keys.whole("rope.dimension_count", config["head_dim"])
    if rotated != config["head_dim"]:
        config["partial_rotary_factor"] = rotated / config["head_dim"]
    original = keys.original_context()
    every = factors("rope_freqs.weight")
    if every is not None:  # Llama 3.1: each frequency's own divisor
        return _own_factors(every, every, config["max_position_embeddings"], 1.0)
    short, long = factors("rope_factors_short.weight"), factors("rope_factors_long.weight")
    if short is not None or long is not None:
        scale = keys.number("rope.scaling.attn_factor", 1.0)
        return _own_factors(short, long, original or config["max_position_embeddings"], scale)
    kind = keys.get("rope.scaling.type", "none")
    if not isinstance(kind, str):
        raise keys.refuse("rope.scaling.type", "a text")
    factor = keys.number("rope.scaling.factor", keys.get("rope.scale_linear", 1.0))
    if kind == "none" and keys.has("rope.scale_linear"):
        kind = "linear"
    if kind == "none" or factor == 1.0:
        return None
    if kind not in ("linear", "yarn"):
        raise UnsupportedError(f"'{keys.prefix}rope.scaling.type' {kind!r:.40} is not supported")
    found: dict[str, Any] = {"rope_type": kind, "factor": factor}
    return found if kind == "linear" else found | _yarn(keys, original)


def _yarn(keys: Keys, original: int | None) -> dict[str, Any]:
    """YaRN's further parameters, if given."""
    for key in ("attn_factor", "yarn_attn_factor", "yarn_ext_factor"):
        if keys.number(f"rope.scaling.{key}", 1.0) != 1.0:
            raise UnsupportedError(
                f"'{keys.prefix}rope.scaling.{key}' with YaRN is not supported; use the "
                "checkpoint of Hugging Face"
            )
    found: dict[str, Any] = {"original_max_position_embeddings": original}
    for key in ("beta_fast", "beta_slow"):
        if keys.has(f"rope.scaling.yarn_{key}"):
            found[key] = keys.number(f"rope.scaling.yarn_{key}")
    return found


def _own_factors(short: Any, long: Any, original: Any, scale: float) -> dict[str, Any]:
    """Frequency divisors that the file holds as tensors, as LongRoPE's."""
    return {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "attention_factor": scale,
        "original_max_position_embeddings": original,
    }
