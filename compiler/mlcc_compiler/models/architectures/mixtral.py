"""Mixtral (Jiang et al., 2024): Mistral whose every MLP is a mixture of eight.
`checkpoint/name_maps.py` has its checkpoints' names.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    common_fields,
    rope_from_hf,
)
from mlcc_compiler.models.fields import HfConfig, window_of
from mlcc_compiler.models.layers import PreNormLayer
from mlcc_compiler.models.moe import Experts, MixtureOfExperts, chosen_of, count_of

DEFAULTS = DECODER_DEFAULTS | {
    "max_position_embeddings": 131072,
    "num_experts_per_tok": 2,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "rms_norm_eps": 1e-5,
    "sliding_window": None,
}
ALIASES = {"num_experts": "num_local_experts"}
"""Other names of fields, which overrule them as in transformers."""


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder all of whose layers have `experts`."""

    experts: Experts


class Layer(PreNormLayer):
    """The usual pre-norm layer with a mixture for an MLP."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        self.mlp = MixtureOfExperts(config, config.experts)


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a MixtralForCausalLM."""
    fields = common_fields(hf, "mixtral")
    count = count_of(hf, "num_local_experts")
    return Config(
        **fields | {"windows": (window_of(hf),) * fields["num_layers"]},
        ropes=(rope_from_hf(hf, context, default_theta=1e6),),
        experts=Experts(
            count=count,
            chosen=chosen_of(hf, count),
            inner=fields["intermediate_size"],
            normalise=True,
        ),
    )
