"""GLM-4.7-Flash (Zhipu AI, 2026): DeepSeek V3's layers, with `mlp_layer_types` naming those with
experts.
"""

from __future__ import annotations

from mlcc_compiler.models.architectures import deepseek_v3
from mlcc_compiler.models.architectures.deepseek_v2 import Config
from mlcc_compiler.models.fields import HfConfig, refuse, require

Layer = deepseek_v3.Layer
DEFAULTS = deepseek_v3.DEFAULTS | {
    "max_position_embeddings": 202752,
    "num_key_value_heads": 20,
    "rms_norm_eps": 1e-5,
    "q_lora_rank": 768,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "first_k_dense_replace": 1,
    "n_routed_experts": 64,
    "moe_intermediate_size": 1536,
    "num_experts_per_tok": 4,
    "routed_scaling_factor": 1.8,
    "n_group": 1,
    "topk_group": 1,
    "mlp_layer_types": None,
}
MTP = deepseek_v3.MTP
ALIASES = deepseek_v3.ALIASES
_TYPES = ("dense", "sparse")


def read_config(hf: HfConfig, context: int) -> Config:
    """config.json of a Glm4MoeLiteForCausalLM. Dense layers come first in `mlp_layer_types`."""
    layers, types = require(hf, "num_hidden_layers"), hf["mlp_layer_types"]
    if types is not None:
        if not isinstance(types, list) or len(types) != layers:
            raise refuse("mlp_layer_types", f"a list of {layers}, one for each layer", types)
        dense = types.count("dense")
        if types != [_TYPES[0]] * dense + [_TYPES[1]] * (layers - dense):
            raise refuse("mlp_layer_types", "'dense' layers, then 'sparse' ones", types)
        hf = {**hf, "first_k_dense_replace": dense}
    return deepseek_v3.read_config(hf, context)
