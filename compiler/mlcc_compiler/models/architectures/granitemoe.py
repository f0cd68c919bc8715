"""Granite 3 with experts (IBM, 2024), optionally with a shared one: Granite whose MLPs are
mixtures. `checkpoint/name_maps.py` has its checkpoints' stacked matrices.
"""

from __future__ import annotations

from mlcc_compiler.models.architectures import granite, mixtral
from mlcc_compiler.models.architectures.mixtral import Config
from mlcc_compiler.models.config import common_fields, rope_from_hf
from mlcc_compiler.models.fields import HfConfig, positive, require
from mlcc_compiler.models.moe import Experts, chosen_of, count_of

Layer = mixtral.Layer

DEFAULTS = granite.DEFAULTS | {"num_local_experts": 8, "num_experts_per_tok": 2}


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a GraniteMoeForCausalLM or GraniteMoeSharedForCausalLM; a
    `shared_intermediate_size` of 0, or none, means no shared expert."""
    fields = common_fields(hf, str(hf["model_type"]))
    count, bias = count_of(hf, "num_local_experts"), bool(hf.get("attention_bias", False))
    shared = hf["model_type"] == "granitemoeshared" and hf.get("shared_intermediate_size", 0) != 0
    return Config(
        **fields | {"attention_scale": positive(hf, "attention_multiplier")},
        ropes=(rope_from_hf(hf, context),),
        qkv_bias=bias,
        output_bias=bias,
        embed_scale=positive(hf, "embedding_multiplier"),
        residual_scale=positive(hf, "residual_multiplier"),
        logit_scale=1 / positive(hf, "logits_scaling"),
        experts=Experts(
            count=count,
            chosen=chosen_of(hf, count),
            inner=fields["intermediate_size"],
            normalise=True,
            shared=require(hf, "shared_intermediate_size") if shared else 0,
        ),
    )
