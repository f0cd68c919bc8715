"""What every decoder-only architecture here can be described by, read from config.json.

Each architecture's file fills a `DecoderConfig`; the shared layers read nothing else. It is not
HF's config: fields are resolved (per-layer windows, built rope tables), never optional by omission.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.models.rope import Rope, RopeConfig, build_rope

HfConfig = Mapping[str, Any]

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
}


DECODER_DEFAULTS: dict[str, Any] = {
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
"""What a config.json that is silent means, as in `transformers`; each architecture's DEFAULTS add
to it. A null is not silence: it stays."""


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Sizes and switches of one model; `windows` and `rope_of_layer` have one entry per layer."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    max_position: int
    tie_embeddings: bool
    attention_scale: float
    windows: tuple[int | None, ...]
    ropes: tuple[Rope, ...]
    rope_of_layer: tuple[int, ...]
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    norm_offset: float = 0.0
    embed_scale: float = 1.0
    attention_softcap: float | None = None
    final_softcap: float | None = None

    @property
    def window(self) -> int | None:
        """The widest window if every layer has one: pages behind it are dead."""
        widths = [w for w in self.windows if w is not None]
        return max(widths) if widths and len(widths) == self.num_layers else None


def common_fields(hf: HfConfig, architecture: str) -> dict[str, Any]:
    """The fields that all architectures spell alike. Raises CheckpointError if one is missing."""
    heads = require(hf, "num_attention_heads")
    hidden = require(hf, "hidden_size")
    head_dim = int(hf.get("head_dim") or hidden // heads)
    kv_heads = int(hf.get("num_key_value_heads") or heads)
    if heads % kv_heads:
        raise CheckpointError(f"config.json: {heads} heads do not divide over {kv_heads} KV heads")
    layers = require(hf, "num_hidden_layers")
    return {
        "architecture": architecture,
        "vocab_size": require(hf, "vocab_size"),
        "hidden_size": hidden,
        "intermediate_size": require(hf, "intermediate_size"),
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": head_dim,
        "norm_eps": float(hf["rms_norm_eps"]),
        "activation": activation(hf),
        "max_position": require(hf, "max_position_embeddings"),
        "tie_embeddings": bool(hf["tie_word_embeddings"]),
        "attention_scale": head_dim**-0.5,
        "windows": (None,) * layers,
        "rope_of_layer": (0,) * layers,
    }


def require(hf: HfConfig, key: str) -> int:
    """An integer field that must be there. Raises CheckpointError."""
    value = hf.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise CheckpointError(
            f"config.json: '{key}' must be a positive integer, got {value!r}; "
            "fetch the checkpoint's config.json again"
        )
    return value


def activation(hf: HfConfig) -> str:
    """The gate's activation under our name. Raises UnsupportedError."""
    name = str(hf.get("hidden_activation") or hf.get("hidden_act") or "silu")
    if name not in ACTIVATIONS:
        raise UnsupportedError(
            f"activation '{name}' is not supported; these are: {', '.join(sorted(ACTIVATIONS))}"
        )
    return ACTIVATIONS[name]


def rope_from_hf(
    hf: HfConfig,
    context: int,
    *,
    layer_type: str | None = None,
    default_theta: float = 10000.0,
    overrides: Mapping[str, Any] | None = None,
) -> Rope:
    """The rope of one kind of layer, from either spelling HF has used.

    Old: `rope_theta` and `rope_scaling`. New: `rope_parameters`, possibly one per layer type.
    """
    parameters = dict(hf.get("rope_parameters") or hf.get("rope_scaling") or {})
    if layer_type is not None and layer_type in parameters:
        parameters = dict(parameters[layer_type] or {})
    parameters.update(overrides or {})
    original = hf.get("original_max_position_embeddings")
    if original:
        parameters.setdefault("original_max_position_embeddings", original)
    theta = float(parameters.get("rope_theta") or hf.get("rope_theta") or default_theta)
    head_dim = int(hf.get("head_dim") or require(hf, "hidden_size") // hf["num_attention_heads"])
    partial = parameters.get("partial_rotary_factor") or hf.get("partial_rotary_factor") or 1.0
    return build_rope(
        RopeConfig(
            parameters=parameters,
            theta=theta,
            dim=int(head_dim * float(partial)),
            max_position=require(hf, "max_position_embeddings"),
            context=context,
        )
    )


def windows_from_layer_types(
    hf: HfConfig, window: int | None, default: list[str]
) -> list[int | None]:
    """One window per layer from `layer_types` ("sliding_attention" / "full_attention")."""
    types = hf.get("layer_types") or default
    return [window if kind == "sliding_attention" else None for kind in types]
