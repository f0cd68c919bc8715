"""Mistral 4 (Mistral AI, 2026): DeepSeek V3's latent attention and mixtures, with a softmax router,
YaRN, and query scaling as in Ministral 3.
"""

from __future__ import annotations

from dataclasses import replace

from mlcc_compiler.models.architectures import deepseek_v2, deepseek_v3, glm4_moe
from mlcc_compiler.models.config import rope_parameters, with_rope
from mlcc_compiler.models.fields import HfConfig, optional, refuse, require
from mlcc_compiler.models.moe import Experts

Layer = deepseek_v2.Layer
DEFAULTS = {
    **deepseek_v3.DEFAULTS,
    "max_position_embeddings": 1048576,
    "num_key_value_heads": 32,
    "first_k_dense_replace": 0,
    "kv_lora_rank": 256,
    "q_lora_rank": 1024,
    "qk_nope_head_dim": 64,
    "n_routed_experts": 128,
    "num_experts_per_tok": 4,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
}
ALIASES = deepseek_v3.ALIASES
for _key in ("topk_method", "scoring_func", "moe_layer_freq"):
    del DEFAULTS[_key]
_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 128.0,
    "original_max_position_embeddings": 8192,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale_all_dim": 1.0,
    "mscale": 1.0,
    "llama_4_scaling_beta": 0.1,
}
"""Rope of a config.json without `rope_parameters`."""


def read_config(hf: HfConfig, context: int) -> deepseek_v2.Config:
    """config.json (or its `text_config`) of a Mistral4ForCausalLM."""
    deepseek_v2.only(hf, "rope_interleave", (True,))
    nope, rope = require(hf, "qk_nope_head_dim"), require(hf, "qk_rope_head_dim")
    given = rope_parameters(hf) or dict(_ROPE)
    part = optional(given, "partial_rotary_factor")
    if part is not None and int((nope + rope) * part) != rope:
        raise refuse("partial_rotary_factor", f"{rope} of {nope + rope}", part)
    given.pop("partial_rotary_factor", None)
    hf = {**with_rope(hf, given), "partial_rotary_factor": None}
    return deepseek_v2.config_of(hf, context, "mistral4", _experts)


def _experts(hf: HfConfig) -> Experts:
    """Groups are chosen by the sum of their two best experts, without a selection bias."""
    experts = glm4_moe.experts_of(hf)
    assert experts.correction is not None
    correction = replace(experts.correction, bias=False)
    return replace(experts, score="softmax", correction=correction)
