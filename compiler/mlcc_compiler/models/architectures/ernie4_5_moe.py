"""ERNIE 4.5 with experts (Baidu, 2025): ERNIE 4.5 whose middle layers have mixtures with shared
experts; a selection bias is added to the softmax. Text only. Its multi-token-prediction
layer is like the first one, and drafts with `--mtp`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mlcc.errors import UnsupportedError
from mlcc_compiler.models.architectures import ernie4_5, glm4_moe
from mlcc_compiler.models.config import Mtp, common_fields, rope_from_hf
from mlcc_compiler.models.fields import HfConfig, positive, refuse, require
from mlcc_compiler.models.moe import Correction, Experts, count_of

if TYPE_CHECKING:
    from typing_extensions import Self

Layer, MTP = glm4_moe.Layer, Mtp(normed=False, own_norm=False)

DEFAULTS = {
    **{k: v for k, v in ernie4_5.DEFAULTS.items() if k != "head_dim"},
    "moe_intermediate_size": 1536,
    "moe_k": 6,
    "moe_layer_end_index": -1,
    "moe_layer_interval": 1,
    "moe_layer_start_index": 1,
    "moe_norm_min": 1e-12,
    "moe_num_experts": 64,
    "moe_num_shared_experts": 2,
    "num_key_value_heads": 4,
}
ALIASES = {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"}
"""Other names of fields, which overrule them as in transformers."""


@dataclass(frozen=True, kw_only=True)
class Config(glm4_moe.Config):
    """As of GLM-4.5, but for the layer of multi-token prediction."""

    def with_mtp_layers(self) -> Self:
        """One more layer like the first, as in Baidu's training code."""
        return replace(super().with_mtp_layers(), sparse=(*self.sparse, self.sparse[0]))


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of an Ernie4_5_MoeForCausalLM. Raises UnsupportedError for one with biases, which
    its head would have too."""
    if hf["use_bias"]:
        raise UnsupportedError(
            "config.json: 'use_bias' is not supported with experts; ERNIE 4.5 MoE runs here "
            "without it (false), as it was published, and ERNIE 4.5 dense with it too"
        )
    fields = common_fields(hf, "ernie4_5_moe")
    sparse = _sparse(hf, fields["num_layers"])
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context, default_theta=500000.0),),
        rope_pairs=True,
        ignored=(r"^model\.mtp_",),
        sparse=sparse,
        experts=_experts(hf) if any(sparse) else None,
    )


def _sparse(hf: HfConfig, layers: int) -> tuple[bool, ...]:
    """Every `moe_layer_interval`-th layer from the first index to the last; -1 is the last one."""
    every, ends = require(hf, "moe_layer_interval"), []
    for key in ("moe_layer_start_index", "moe_layer_end_index"):
        if isinstance(hf[key], bool) or not isinstance(hf[key], int) or hf[key] < -1:
            raise refuse(key, "the number of a layer", hf[key])
        ends.append(hf[key])
    first, last = ends[0], layers - 1 if ends[1] == -1 else ends[1]
    return tuple((i + 1) % every == 0 and first <= i <= last for i in range(layers))


def _experts(hf: HfConfig) -> Experts:
    count, chosen = count_of(hf, "moe_num_experts"), require(hf, "moe_k")
    if chosen > count:
        raise refuse("moe_k", f"at most the number of experts, {count}", chosen)
    inner, shared = require(hf, "moe_intermediate_size"), hf["moe_num_shared_experts"]
    return Experts(
        count=count,
        chosen=chosen,
        inner=inner,
        normalise=True,
        correction=Correction(positive(hf, "moe_norm_min")),
        shared=inner * require(hf, "moe_num_shared_experts") if shared else 0,
    )
