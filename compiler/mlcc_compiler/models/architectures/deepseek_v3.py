"""DeepSeek V3 and R1 (DeepSeek-AI, 2024) and Kimi K2 (Moonshot AI, 2025): DeepSeek V2's latent
attention, and a router with sigmoid scores, a selection bias and groups. Of its
multi-token-prediction layers the first drafts with `--mtp`.
"""

from __future__ import annotations

from mlcc_compiler.models.architectures import deepseek_v2, glm4_moe
from mlcc_compiler.models.fields import HfConfig, refuse
from mlcc_compiler.models.moe import Experts

Layer = deepseek_v2.Layer
DEFAULTS = deepseek_v2.DEFAULTS | {
    "max_position_embeddings": 4096,
    "num_key_value_heads": 128,
    "first_k_dense_replace": 3,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "num_experts_per_tok": 8,
    "routed_scaling_factor": 2.5,
    "n_group": 8,
    "topk_group": 4,
    "norm_topk_prob": True,
    "rope_interleave": True,
    "topk_method": None,
    "scoring_func": None,
}
MTP = glm4_moe.MTP
ALIASES = {"num_local_experts": "n_routed_experts"}
"""Other names of fields, which overrule them as in transformers."""


def read_config(hf: HfConfig, context: int) -> deepseek_v2.Config:
    """config.json of a DeepseekV3ForCausalLM, or of the Kimi K2 that calls itself kimi_k2."""
    deepseek_v2.only(hf, "rope_interleave", (True,))
    rope, width = hf["qk_rope_head_dim"], hf.get("head_dim")
    if width not in (None, rope):
        raise refuse("head_dim", f"silent, or qk_rope_head_dim, {rope}", width)
    return deepseek_v2.config_of(hf, context, str(hf["model_type"]), experts_of)


def experts_of(hf: HfConfig) -> Experts:
    """The mixture of every layer that is not dense. Raises UnsupportedError for other routings."""
    for key, known in (
        ("scoring_func", "sigmoid"),
        ("topk_method", "noaux_tc"),
        ("moe_layer_freq", 1),
    ):
        deepseek_v2.only(hf, key, (known,))
    return glm4_moe.experts_of(hf)
