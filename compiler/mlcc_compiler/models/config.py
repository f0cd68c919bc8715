"""The configuration of a decoder-only model, read from config.json.

Each architecture's file fills a `DecoderConfig`; the shared layers read nothing else. It is not
HF's config: fields are resolved (per-layer windows, built rope tables), never optional by omission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mlcc.errors import CheckpointError, UnsupportedError
from mlcc_compiler.ir.layout import AttentionShape
from mlcc_compiler.models.fields import HfConfig, optional, positive, refuse, require, window_of
from mlcc_compiler.models.rope import Rope, RopeConfig, build_rope

if TYPE_CHECKING:
    from typing_extensions import Self

ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "relu2": "relu2",
}


_WIDEST_HEAD = 4096
FULL = "full_attention"
_BY_LAYER = {"gemma3", "gemma3_text", "gemma3n", "gemma3n_text", "olmo3"}
"""Families whose `rope_parameters` are those of each kind of layer."""
_FULL_ROTARY = {
    "cohere2", "ernie4_5", "ernie4_5_moe", "exaone4", "falcon_h1", "gemma", "gemma2", "gemma3",
    "gemma3_text", "gemma3n", "gemma3n_text", "gpt_oss", "granite", "granitemoe",
    "granitemoehybrid", "granitemoeshared", "lfm2", "lfm2_moe", "llama", "llama4_text",
    "ministral", "ministral3", "mistral", "mixtral", "olmo2", "olmo3", "olmoe", "qwen2",
    "qwen2_moe", "qwen3", "qwen3_moe", "smollm3", "starcoder2",
}  # fmt: skip
"""Families whose `partial_rotary_factor` transformers ignores, or cannot run."""
DECODER_DEFAULTS: dict[str, Any] = {
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
"""Values of absent config.json fields, as in `transformers`; each architecture's DEFAULTS add to
it. An explicit null is kept.
"""


@dataclass(frozen=True)
class QueryScaling:
    """Queries times 1 + beta * log(1 + position // length) (Llama 4; Meta, 2025)."""

    beta: float
    length: int


@dataclass(frozen=True)
class Eagle:
    """An EAGLE-3 head, which drafts in the place of a checkpoint's own layer."""

    config: DecoderConfig
    """Of its layer, with an entry for each of the model's layers too."""
    vocab_size: int
    inputs: tuple[int, ...]
    """Layers of the model whose input it reads."""
    norm_before_residual: bool


@dataclass(frozen=True)
class Mtp:
    """A multi-token-prediction layer."""

    normed: bool
    """Whether it drafts further from its own state after its last norm, or before."""
    hidden_first: bool = False
    """Whether its projection takes the state before the embedding."""
    own_norm: bool = True
    """Whether its last norm is its own. Where it is the model's, the layer reads the model's states
    before that norm."""
    own_head: bool = False
    """Whether drafts have a copy of the model's head, with fewer bits."""
    eagle: Eagle | None = None
    """None = it is the checkpoint's own."""


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Sizes and switches of one model; `windows` and `rope_of_layer` have one entry per layer.

    A layer whose rope is None uses no positions (NoPE; Kazemnejad et al., 2023).
    """

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
    rope_of_layer: tuple[int | None, ...]
    rope_pairs: bool = False
    """Whether rope rotates neighbouring pairs instead of halves."""
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    layer_norm: bool = False
    """Whether norms of hidden states are LayerNorms."""
    norm_bias: bool = False
    norm_offset: float = 0.0
    embed_scale: float = 1.0
    residual_scale: float = 1.0
    """Factor of each residual branch."""
    logit_scale: float = 1.0
    attention_softcap: float | None = None
    causal: bool = True
    """Whether tokens attend to earlier ones only. An encoder's window reaches both ways."""
    final_softcap: float | None = None
    growth: QueryScaling | None = None
    """Scaling of queries with their position; None = none."""
    source_rows: int = 0
    """Rows of an encoder to which all layers attend too (cross-attention); 0 = none."""
    alignment_heads: tuple[tuple[int, int], ...] = ()
    """Layer and head of the cross-attention that follows speech, from which times of words are
    made."""
    first_timestamp: int = 0
    """Tokens from here on are timestamps; 0 = none are."""
    images_both_ways: bool = False
    """Whether the tokens of an image attend to all of it, later ones included."""
    in_windows: tuple[bool, ...] = ()
    """Of a vision tower whose layers attend within windows of the image: which do."""
    reads_images: bool = False
    """Whether ids from the vocabulary's end on name rows that a vision tower made."""
    deepstack: int = 0
    """First layers to whose results a part of those rows of its own is added (DeepStack)."""
    mtp: Mtp | None = None
    """The multi-token-prediction layer; None = there is none, or it is left out."""
    activation_dtype: str = "float32"
    """Dtype of the activations between operators; `ops` documents which results are float32
    regardless."""
    ignored: tuple[str, ...] = ()
    """Regular expressions of a checkpoint's tensors that the model does not use."""

    def with_mtp_layers(self) -> Self:
        """The config with the layers of multi-token prediction too: here one of full attention."""
        return self._longer(1)

    def _longer(self, count: int) -> Self:
        """The config with that many layers more."""
        ropes = (*self.rope_of_layer, *count * self.rope_of_layer[-1:])
        return replace(self, windows=(*self.windows, *count * (None,)), rope_of_layer=ropes)

    def attention(self, layer: int) -> AttentionShape:
        """The attention parameters of a layer."""
        cap = self.attention_softcap
        windowed = bool(self.in_windows) and self.in_windows[layer]
        return AttentionShape(
            heads=self.num_heads,
            kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            scale=float(self.attention_scale),
            window=self.windows[layer],
            softcap=None if cap is None else float(cap),
            causal=self.causal or windowed,
            visible_until=windowed or (self.images_both_ways and self.reads_images),
            visible_from=windowed,
        )

    @property
    def token_columns(self) -> tuple[str, ...]:
        """Columns of a step's tokens that only models that read images or sound have."""
        hidden = ("hidden_row",) if self.mtp else ()
        if self.source_rows:
            return ("source_row",)
        if not self.reads_images:
            return hidden
        windowed = any(self.in_windows)
        turned = any(rope.sections for rope in self.ropes)
        return (
            *(("visible_until",) if self.images_both_ways or windowed else ()),
            *(("position_t", "position_h", "position_w") if turned else ()),
            *hidden,
            *(("visible_from",) if windowed else ()),
        )

    @property
    def window(self) -> int | None:
        """The widest window if every layer has one: older pages can be freed."""
        widths = [w for w in self.windows if w is not None]
        return max(widths) if widths and len(widths) == self.num_layers else None


def common_fields(
    hf: HfConfig, architecture: str, activation_key: str = "hidden_act"
) -> dict[str, Any]:
    """The fields that all architectures spell alike; activation_key: as `activation`'s. Raises
    CheckpointError if one is missing."""
    heads = require(hf, "num_attention_heads")
    hidden = require(hf, "hidden_size")
    head_dim = head_dim_of(hf)
    shared = hf.get("num_key_value_heads") is not None
    kv_heads = require(hf, "num_key_value_heads") if shared else heads
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
        "norm_eps": positive(hf, "rms_norm_eps"),
        "activation": activation(hf, activation_key),
        "max_position": require(hf, "max_position_embeddings"),
        "tie_embeddings": bool(hf["tie_word_embeddings"]),
        "attention_scale": head_dim**-0.5,
        "windows": (None,) * layers,
        "rope_of_layer": (0,) * layers,
    }


def head_dim_of(hf: HfConfig) -> int:
    """`head_dim`, or the hidden size divided by the heads. Must be even for rotation."""
    if hf.get("head_dim") is not None:
        width = require(hf, "head_dim")
    else:
        width = require(hf, "hidden_size") // require(hf, "num_attention_heads")
    if width < 2 or width % 2 or width > _WIDEST_HEAD:
        raise refuse("head_dim", f"an even number of at most {_WIDEST_HEAD}", width)
    return width


def activation(hf: HfConfig, key: str = "hidden_act") -> str:
    """The gate's activation under mlcc's name. key: the field that transformers' class of the
    architecture reads, which of Gemma 2 and later is `hidden_activation`: the other one, where a
    config has both, changes nothing. Raises UnsupportedError."""
    name = str(hf.get(key) or hf.get("hidden_act") or "silu")
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

    Old: `rope_theta` and `rope_scaling`. New: `rope_parameters`, possibly one per layer type. An
    outer `original_max_position_embeddings` overrules the rope's, as in transformers.
    """
    parameters = rope_parameters(hf)
    nested = layer_type is not None and layer_type in parameters
    if layer_type is not None and nested:
        parameters = _object(parameters, layer_type)
    elif _is_unread(hf):
        parameters = {}
    if layer_type is not None and not parameters.get("truncate", True):
        raise UnsupportedError(
            f"config.json: 'truncate' false is not supported for {hf.get('model_type')!r}: of a "
            "rope for each kind of layer transformers does not read it; leave it out"
        )
    parameters.update(overrides or {})
    original = hf.get("original_max_position_embeddings")
    if original and not nested:
        parameters["original_max_position_embeddings"] = original
    theta = optional(parameters, "rope_theta") or optional(hf, "rope_theta") or default_theta
    partial = optional(parameters, "partial_rotary_factor")
    partial = partial or optional(hf, "partial_rotary_factor") or 1.0
    head_dim = head_dim_of(hf)
    if partial != 1.0 and str(hf.get("model_type")) in _FULL_ROTARY:
        raise UnsupportedError(
            f"config.json: 'partial_rotary_factor' {partial} is not supported for "
            f"{hf['model_type']!r}, of which transformers turns whole heads; leave it out, or name "
            "the family that turns a part of them: 'phi3', 'glm4' or 'nemotron'"
        )
    dim = int(head_dim * partial)
    if parameters.get("rope_type") == "proportional":  # which leaves a part of them at rest
        dim = head_dim
    if dim < 2 or dim % 2 or dim > head_dim:
        raise refuse("partial_rotary_factor", f"an even part of {head_dim}", partial)
    return build_rope(
        RopeConfig(
            parameters=parameters,
            theta=theta,
            dim=dim,
            max_position=require(hf, "max_position_embeddings"),
            context=context,
        )
    )


def growth_of(hf: HfConfig, context: int) -> QueryScaling | None:
    """Query scaling by `llama_4_scaling_beta` of the rope; None where the context is too short for
    it."""
    given = rope_parameters(hf)
    if given.get("llama_4_scaling_beta") is None:
        return None
    length = require(given, "original_max_position_embeddings")
    beta = positive(given, "llama_4_scaling_beta")
    return QueryScaling(beta, length) if context > length else None


def long_factors(hf: HfConfig, context: int) -> bool:
    """Whether a compile for `context` uses LongRoPE's long factors, or `dynamic`'s longer base, for
    prompts of any length."""
    given, key = rope_parameters(hf), "original_max_position_embeddings"
    original = optional(given, key) or optional(hf, key)
    return "long_factor" in given and original is not None and context > original


def rope_parameters(hf: HfConfig) -> dict[str, Any]:
    """A fresh copy of the rope's parameters: `rope_scaling`, the older field, overrules
    `rope_parameters`, and of those of each kind of layer completes `full_attention`'s, as in
    transformers."""
    old, new = _object(hf, "rope_scaling"), _object(hf, "rope_parameters")
    if old and FULL in new:
        return {**new, FULL: {**_object(new, FULL), **old}}
    return old or new


def with_rope(hf: HfConfig, parameters: Mapping[str, Any]) -> HfConfig:
    """The config with these `rope_parameters`."""
    return {**hf, "rope_parameters": parameters, "rope_scaling": None}


def rope_note(hf: HfConfig) -> str | None:
    """Which of two contradicting fields is used; None if there is only one."""
    old, new = _object(hf, "rope_scaling"), _object(hf, "rope_parameters")
    if _is_unread(hf):
        return (
            "config.json's 'rope_parameters' is not used, as in transformers: this family has one "
            "for each kind of layer, under 'full_attention' and 'sliding_attention'"
        )
    if not old or not new or FULL in new or old == new:
        return None
    lost = ", ".join(repr(key) for key in new if key not in old)
    without = f", without the latter's {lost}" if lost else ""
    return f"config.json's 'rope_scaling' is used instead of 'rope_parameters'{without}"


def _is_unread(hf: HfConfig) -> bool:
    """Whether a config has one `rope_parameters` where transformers reads those of each kind of
    layer alone."""
    new, old = _object(hf, "rope_parameters"), _object(hf, "rope_scaling")
    flat = bool(new) and not any(isinstance(value, Mapping) for value in new.values())
    return flat and not old and str(hf.get("model_type")) in _BY_LAYER


def _object(hf: HfConfig, key: str) -> dict[str, Any]:
    value = hf.get(key) or {}
    if not isinstance(value, Mapping):
        raise refuse(key, "an object", value)
    return dict(value)


def windows_by_type(hf: HfConfig, types: Sequence[str]) -> tuple[int | None, ...]:
    """One window per layer: `sliding_window` for layers of a sliding type."""
    window = window_of(hf)
    return tuple(window if kind == "sliding_attention" else None for kind in types)
