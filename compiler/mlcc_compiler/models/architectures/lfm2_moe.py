"""LFM2 with experts (Liquid AI, 2025): LFM2 whose MLPs are mixtures in all but the first layers,
routed by sigmoids with a selection bias.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler.ir._tvm import nn
from mlcc_compiler.models.architectures import lfm2
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.moe import Correction, Experts, MixtureOfExperts, chosen_of, count_of

DEFAULTS = {
    **lfm2.DEFAULTS,
    "intermediate_size": 7168,
    "moe_intermediate_size": 1792,
    "num_dense_layers": 2,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "use_expert_bias": True,
    "norm_topk_prob": True,
    "routed_scaling_factor": 1.0,
}
for _key in ("block_multiple_of", "block_ffn_dim_multiplier", "block_auto_adjust_ff_dim"):
    del DEFAULTS[_key]
del DEFAULTS["full_attn_idxs"]
_ADDED = 1e-6
"""Added to the sum of weights: visible if an expert chosen for its bias has a sigmoid near 0."""


@dataclass(frozen=True, kw_only=True)
class Config(lfm2.Config):
    """LFM2 some of whose layers are `sparse`."""

    experts: Experts
    sparse: tuple[bool, ...]


class Layer(lfm2.Layer):
    """LFM2's, with a mixture for an MLP where the layer is sparse."""

    def mlp_of(self, config: lfm2.Config, layer: int) -> nn.Module:
        assert isinstance(config, Config)
        if config.sparse[layer]:
            return MixtureOfExperts(config, config.experts)
        return super().mlp_of(config, layer)


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of an Lfm2MoeForCausalLM."""
    if hf["layer_types"] is None:
        raise refuse("layer_types", "a list of what each layer is", None)
    hf = {**lfm2.renamed(hf), "full_attn_idxs": None}
    fields = lfm2.fields_of(hf, context, "lfm2_moe")
    dense = hf["num_dense_layers"]
    if isinstance(dense, bool) or not isinstance(dense, int) or dense < 0:
        raise refuse("num_dense_layers", "a number of layers", dense)
    return Config(
        **fields,
        sparse=tuple(layer >= dense for layer in range(fields["num_layers"])),
        experts=_experts(hf),
    )


def _experts(hf: HfConfig) -> Experts:
    count = count_of(hf, "num_experts")
    return Experts(
        count=count,
        chosen=chosen_of(hf, count),
        inner=require(hf, "moe_intermediate_size"),
        normalise=bool(hf["norm_topk_prob"]),
        score="sigmoid",
        correction=Correction(0.0, added=_ADDED) if hf["use_expert_bias"] else None,
        scale=positive(hf, "routed_scaling_factor"),
    )
