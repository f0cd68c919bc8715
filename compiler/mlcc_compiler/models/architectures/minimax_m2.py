"""MiniMax M2 (MiniMax, 2025): mixtures in every layer, routed by sigmoids with a selection bias,
and norms of all queries and all keys. `checkpoint/name_maps.py` has its names. MiniMax
01's lightning attention is not part of it.
"""

from __future__ import annotations

from typing import Any

from mlcc.errors import UnsupportedError
from mlcc_compiler.models.architectures import olmoe
from mlcc_compiler.models.architectures.mixtral import Config
from mlcc_compiler.models.config import (
    DECODER_DEFAULTS,
    common_fields,
    head_dim_of,
    rope_from_hf,
    rope_parameters,
)
from mlcc_compiler.models.fields import HfConfig, require
from mlcc_compiler.models.moe import Correction, Experts, chosen_of, count_of

Layer = olmoe.Layer
NO_MTP = "MiniMax M2 is published without the layers that its config counts"

DEFAULTS = DECODER_DEFAULTS | {
    "head_dim": 128,
    "max_position_embeddings": 196608,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 8,
    "num_local_experts": 256,
}
ALIASES = {"num_experts": "num_local_experts"}
"""Other names of fields, which overrule them as in transformers."""
_KNOWN: dict[str, Any] = {
    "scoring_func": "sigmoid",
    "use_qk_norm": True,
    "qk_norm_type": "per_layer",
    "use_routing_bias": True,
    "shared_intermediate_size": 0,
}
"""Fields of the hub's config.json that `transformers` does not read, and the values it assumes."""


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a MiniMaxM2ForCausalLM. Raises UnsupportedError for other values."""
    for key, known in _KNOWN.items():
        if hf.get(key, known) != known:
            raise _other(key, known, hf[key])
    kinds = hf.get("attn_type_list")
    if kinds is not None and any(kind != 1 for kind in kinds):
        raise _other("attn_type_list", 1, 0)
    fields = common_fields(hf, "minimax_m2")
    count = count_of(hf, "num_local_experts")
    turned: dict[str, Any] = {}
    if hf.get("rotary_dim") is not None and "partial_rotary_factor" not in rope_parameters(hf):
        turned["partial_rotary_factor"] = require(hf, "rotary_dim") / head_dim_of(hf)
    return Config(
        **fields,
        ropes=(rope_from_hf(hf, context, default_theta=5e6, overrides=turned),),
        ignored=(r"^model\.mtp",),
        experts=Experts(
            count=count,
            chosen=chosen_of(hf, count),
            inner=fields["intermediate_size"],
            normalise=True,
            score="sigmoid",
            correction=Correction(0.0),
        ),
    )


def _other(key: str, known: Any, found: Any) -> UnsupportedError:
    return UnsupportedError(
        f"config.json: '{key}' {found!r} is not supported, only {known!r}; of the MiniMax models "
        "M2 and those made from it run here"
    )
