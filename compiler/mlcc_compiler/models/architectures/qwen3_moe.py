"""Qwen3 with experts (Yang et al., 2025): Qwen3 whose MLPs are mixtures, in most layers or all. The
language model of Qwen3-VL's mixtures too, as `qwen3.py` is of the dense ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc_compiler.models.architectures import qwen3
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig, refuse, require, window_of
from mlcc_compiler.models.layers import PreNormLayer
from mlcc_compiler.models.moe import Experts, MixtureOfExperts, chosen_of, count_of

DEFAULTS = DECODER_DEFAULTS | {
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "norm_topk_prob": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
}
ALIASES = {"num_local_experts": "num_experts"}
"""Other names of fields, which overrule them as in transformers."""
Stack = qwen3.Stack


def complete(hf: HfConfig) -> HfConfig:
    """Qwen3-VL has no `norm_topk_prob`: the probabilities of its chosen experts always add up to
    1."""
    always = str(hf.get("model_type")).startswith("qwen3_vl_moe")
    return {**hf, "norm_topk_prob": True} if always else hf


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder some of whose layers are `sparse`."""

    experts: Experts
    sparse: tuple[bool, ...]


class Layer(PreNormLayer):
    """The usual pre-norm layer, with a mixture for an MLP where the layer is sparse."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        if config.sparse[layer]:
            self.mlp = MixtureOfExperts(config, config.experts)


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a Qwen3MoeForCausalLM."""
    fields = common_fields(hf, "qwen3_moe")
    if hf["use_sliding_window"]:  # of every layer: `max_window_layers` means nothing here
        fields["windows"] = (window_of(hf),) * fields["num_layers"]
    count = count_of(hf, "num_experts")
    bias = bool(hf.get("attention_bias", False))
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        sparse=sparse_layers(hf, fields["num_layers"]),
        experts=Experts(
            count=count,
            chosen=chosen_of(hf, count),
            inner=require(hf, "moe_intermediate_size"),
            normalise=bool(hf["norm_topk_prob"]),
        ),
    )


def sparse_layers(hf: HfConfig, layers: int) -> tuple[bool, ...]:
    """Every `decoder_sparse_step`-th layer, except those in `mlp_only_layers`."""
    step, dense = require(hf, "decoder_sparse_step"), hf["mlp_only_layers"]
    dense = [] if dense is None else dense
    if not isinstance(dense, list) or not all(_is_layer(i, layers) for i in dense):
        raise refuse("mlp_only_layers", f"a list of layers from 0 to {layers - 1}", dense)
    return tuple(i not in dense and (i + 1) % step == 0 for i in range(layers))


def _is_layer(value: Any, layers: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < layers
