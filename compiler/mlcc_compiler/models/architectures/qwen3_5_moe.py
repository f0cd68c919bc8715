"""Qwen3.5 with experts, its text (Qwen Team, 2026): Qwen3.5 with a mixture and a shared expert in
every layer; the weights of the chosen always sum to 1. Its multi-token-prediction layer drafts
with `--mtp`.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.models.architectures import qwen3_5, qwen3_next
from mlcc_compiler.models.fields import HfConfig, require
from mlcc_compiler.models.moe import Experts, chosen_of, count_of

DEFAULTS = qwen3_5.DEFAULTS | {
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "num_key_value_heads": 2,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
del DEFAULTS["intermediate_size"]

Layer, MTP = qwen3_5.Layer, qwen3_5.MTP


def read_config(hf: HfConfig, context: int) -> qwen3_next.Config:
    """config.json (or its `text_config`) of a Qwen3_5MoeForCausalLM."""
    inner = require(hf, "moe_intermediate_size")
    count = count_of(hf, "num_experts")
    dense = qwen3_5.read_config({**hf, "intermediate_size": inner}, context)
    experts = Experts(
        count=count,
        chosen=chosen_of(hf, count),
        inner=inner,
        normalise=True,
        shared=require(hf, "shared_expert_intermediate_size"),
        shared_gate=True,
    )
    return replace(dense, sparse=(True,) * dense.num_layers, experts=experts)
