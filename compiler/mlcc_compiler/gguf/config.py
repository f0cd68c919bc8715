"""GGUF's metadata as the config.json that `models.registry` reads, and generation defaults.

Keys are llama.cpp's `ARCHITECTURE.*`. What a converter leaves out because llama.cpp knows it
(Gemma's local rope base, the scale of the 27B models) is said here, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.gguf.header import Value
from mlcc_compiler.gguf.names import FAMILIES

Factors = Callable[[str], "list[float] | None"]
"""The numbers of a tensor of frequencies; None if it is not there."""

_SIZES = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "rope.freq_base": "rope_theta",
    "vocab_size": "vocab_size",
}
_REAL = (
    "attention.layer_norm_rms_epsilon",
    "rope.freq_base",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "attention.sliding_window",
    "expert_count",
)  # or 0: there is none
_NEEDED = ("context_length", "embedding_length", "block_count", "attention.head_count")
_READ_BELOW = (
    "attention.value_length", "attention.causal", "attention.sliding_window_pattern",
    "attention.scale", "rope.dimension_count", "rope.freq_base_swa", "rope.scale_linear",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned",
    "rope.scaling.yarn_log_multiplier", "tensor_data_layout",
)  # fmt: skip
_SAMPLING = {"temp": "temperature", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p"}
_GEMMA_27B = {"gemma2": 46, "gemma3": 62}
"""Layers of the two models whose queries are scaled by hidden_size / heads, not by head_dim."""


def architecture_of(metadata: Mapping[str, Value], path: object) -> str:
    """`general.architecture`, if it is one of ours. Raises CheckpointError, UnsupportedError."""
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
            f"{path}: architecture '{found}' of GGUF is not supported; these are: "
            f"{', '.join(sorted(FAMILIES))}"
        )
    return found


def config_of(
    metadata: Mapping[str, Value], architecture: str, tied: bool, vocab: int, factors: Factors
) -> tuple[dict[str, Any], list[str]]:
    """A config.json, and notes of keys that mean nothing here. vocab: rows of the embedding.

    Raises CheckpointError (a key is missing or does not fit), UnsupportedError.
    """
    keys = _Keys(metadata, architecture)
    config: dict[str, Any] = {"model_type": architecture, "vocab_size": vocab}
    for key, name in _SIZES.items():
        if key in _NEEDED or keys.has(key):
            config[name] = keys.number(key) if key in _REAL else keys.whole(key)
    config["vocab_size"] = vocab  # the key is there in few files, and wrong in some
    config["tie_word_embeddings"] = tied
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    width = config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    if keys.number("attention.value_length", width) != width:
        raise keys.refuse("attention.value_length", f"as long as keys, {width}")
    if keys.number("attention.scale", 0.0) not in (0.0, width**-0.5):
        raise UnsupportedError(
            f"'{architecture}.attention.scale' is not supported; use the checkpoint of Hugging Face"
        )
    if keys.get("attention.causal") is False:
        raise UnsupportedError(f"a GGUF file of an encoder ({architecture}) is no chat model")
    config["rope_scaling"] = _rope(keys, config, factors)
    if (more := _OF_ARCHITECTURE.get(architecture)) is not None:
        more(keys, config)
    return config, keys.unknown()


def generation_config_of(metadata: Mapping[str, Value]) -> dict[str, Any]:
    """What a file recommends for sampling, under Hugging Face's names."""
    found = {
        name: metadata[f"general.sampling.{key}"]
        for key, name in _SAMPLING.items()
        if f"general.sampling.{key}" in metadata
    }
    return {n: v for n, v in found.items() if isinstance(v, (int, float)) and np.isfinite(v)}


class _Keys:
    """The metadata of one architecture, checked a value at a time."""

    def __init__(self, metadata: Mapping[str, Value], architecture: str) -> None:
        self.metadata, self.prefix = metadata, f"{architecture}."

    def has(self, key: str) -> bool:
        return self.prefix + key in self.metadata

    def get(self, key: str, default: Any = None) -> Any:
        return self.metadata.get(self.prefix + key, default)

    def number(self, key: str, default: Any = None) -> Any:
        """A number; of one for each layer, the one that they all are."""
        value = self.get(key, default)
        if isinstance(value, np.ndarray) and value.size and (value == value[0]).all():
            value = value[0].item()
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.refuse(key, "a number, the same in all layers")
        return value

    def whole(self, key: str, default: Any = None) -> int:
        """A whole number above 0, the same in all layers."""
        value = self.number(key, default)
        if not isinstance(value, int) or value <= 0:
            raise self.refuse(key, "a whole number above 0")
        return value

    def original_context(self) -> int | None:
        """The length before a rope was scaled; None if the file does not say."""
        key = "rope.scaling.original_context_length"
        return self.whole(key) if self.number(key, 0) else None

    def refuse(self, key: str, wanted: str) -> CheckpointError:
        found = repr(self.get(key))
        return CheckpointError(
            f"metadata key '{self.prefix}{key}' must be {wanted}, got {found[:60]}; this GGUF file "
            "is damaged, or of a kind that mlcc does not know"
        )

    def unknown(self) -> list[str]:
        known = {*_SIZES, *_READ_BELOW}
        rest = [k for k in self.metadata if k.startswith(self.prefix)]
        return sorted(k for k in rest if k.removeprefix(self.prefix) not in known)


def _rope(keys: _Keys, config: dict[str, Any], factors: Factors) -> dict[str, Any] | None:
    """`rope_scaling`, and in `config` how much of a head rotates."""
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
        own = _own_factors(short, long, original or config["max_position_embeddings"], scale)
        return own
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
    if kind == "yarn":
        found["original_max_position_embeddings"] = original
        if keys.has("rope.scaling.attn_factor"):
            raise UnsupportedError(
                f"'{keys.prefix}rope.scaling.attn_factor' with YaRN is not supported; use the "
                "checkpoint of Hugging Face"
            )
    return found


def _own_factors(short: Any, long: Any, original: Any, scale: float) -> dict[str, Any]:
    """Divisors of frequencies that the file holds as tensors, as LongRoPE's."""
    return {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
        "attention_factor": scale,
        "original_max_position_embeddings": original,
    }


def _llama(keys: _Keys, config: dict[str, Any]) -> None:
    if config.get("num_experts"):
        raise UnsupportedError("a GGUF file of a Llama with experts (Mixtral) is not supported")
    if "partial_rotary_factor" in config:
        raise keys.refuse("rope.dimension_count", f"the width of a head, {config['head_dim']}")
    if config.get("sliding_window"):
        config["model_type"] = "mistral"


def _qwen(keys: _Keys, config: dict[str, Any]) -> None:
    """llama.cpp has no window here either."""
    config["use_sliding_window"] = False


def _qwen3moe(keys: _Keys, config: dict[str, Any]) -> None:
    config |= {"model_type": "qwen3_moe", "norm_topk_prob": True, "use_sliding_window": False}
    config.setdefault("intermediate_size", config.get("moe_intermediate_size"))


def _gemma(keys: _Keys, config: dict[str, Any]) -> None:
    architecture = config["model_type"]
    width, heads = config["head_dim"], config["num_attention_heads"]
    is_27b = config["num_hidden_layers"] == _GEMMA_27B[architecture]
    config["query_pre_attn_scalar"] = config["hidden_size"] // heads if is_27b else width
    config["hidden_activation"] = "gelu_pytorch_tanh"


def _gemma3(keys: _Keys, config: dict[str, Any]) -> None:
    _gemma(keys, config)
    config["model_type"] = "gemma3_text"
    config["rope_local_base_freq"] = keys.number("rope.freq_base_swa", 10000.0)
    pattern = keys.get("attention.sliding_window_pattern", 6)
    if isinstance(pattern, np.ndarray):
        if len(pattern) != config["num_hidden_layers"]:
            raise keys.refuse("attention.sliding_window_pattern", "one for each layer")
        config["layer_types"] = [
            "sliding_attention" if slides else "full_attention" for slides in pattern
        ]
    else:
        config["sliding_window_pattern"] = pattern


def _phi3(keys: _Keys, config: dict[str, Any]) -> None:
    original = keys.original_context()
    config["original_max_position_embeddings"] = original or config["max_position_embeddings"]
    if not config.get("sliding_window"):
        config["sliding_window"] = None


_OF_ARCHITECTURE: Mapping[str, Callable[[_Keys, dict[str, Any]], None]] = {
    "llama": _llama,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "qwen3moe": _qwen3moe,
    "gemma2": _gemma,
    "gemma3": _gemma3,
    "phi3": _phi3,
}
