"""GLM-4.5 and 4.6 (Zhipu AI, 2025): dense layers first, then mixtures with a shared expert, whose
router has sigmoid scores and a selection bias (DeepSeek-AI, 2024).

Of its multi-token-prediction layers the first drafts with `--mtp`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    DecoderConfig,
    Mtp,
    common_fields,
    rope_from_hf,
    rope_parameters,
)
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.layers import PreNormLayer
from mlcc_compiler.models.moe import Experts, MixtureOfExperts, chosen_of, correction_of, count_of

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULTS = DECODER_DEFAULTS | {
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "max_position_embeddings": 131072,
    "moe_intermediate_size": 1408,
    "n_group": 1,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 8,
    "partial_rotary_factor": 0.5,
    "rms_norm_eps": 1e-5,
    "routed_scaling_factor": 1.0,
    "topk_group": 1,
    "use_qk_norm": False,
}
MTP = Mtp(normed=False)
ALIASES = {"num_local_experts": "n_routed_experts"}
"""Other names of fields, which overrule them as in transformers."""
_LEAST = 1e-20
"""HF adds it to the sum of the weights; here it is the sum's minimum: for any sum above 1e-13 that
is the same float32.
"""


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """A decoder some of whose layers are `sparse`; `experts` is None if none is."""

    experts: Experts | None
    sparse: tuple[bool, ...]

    def with_mtp_layers(self) -> Self:
        """One more layer, with a mixture if there is one."""
        return replace(super().with_mtp_layers(), sparse=(*self.sparse, self.experts is not None))


class Layer(PreNormLayer):
    """The usual pre-norm layer, with a mixture for an MLP where the layer is sparse."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__(config, layer)
        if config.sparse[layer]:
            assert config.experts is not None
            self.mlp = MixtureOfExperts(config, config.experts, "shared_experts")


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a Glm4MoeForCausalLM."""
    fields = common_fields(hf, "glm4_moe")
    layers, dense = fields["num_layers"], hf["first_k_dense_replace"]
    if isinstance(dense, bool) or not isinstance(dense, int) or dense < 0:
        raise refuse("first_k_dense_replace", "a number of layers", dense)
    part = rope_parameters(hf).get("partial_rotary_factor", hf["partial_rotary_factor"])
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context, overrides={"partial_rotary_factor": part}),),
        qkv_bias=bool(hf["attention_bias"]),
        qk_norm=bool(hf["use_qk_norm"]),
        ignored=(rf"^model\.layers\.({layers}|{layers + 1}|{layers + 2})\.",),
        sparse=tuple(i >= dense for i in range(layers)),
        experts=experts_of(hf) if dense < layers else None,
    )


def experts_of(hf: HfConfig) -> Experts:
    """The mixture of sparse layers; DeepSeek V3's too."""
    count, inner = count_of(hf, "n_routed_experts"), require(hf, "moe_intermediate_size")
    chosen = chosen_of(hf, count)
    return Experts(
        count=count,
        chosen=chosen,
        inner=inner,
        normalise=bool(hf["norm_topk_prob"]),
        score="sigmoid",
        correction=correction_of(hf, count, chosen, _LEAST),
        scale=positive(hf, "routed_scaling_factor"),
        shared=inner * require(hf, "n_shared_experts"),
    )
