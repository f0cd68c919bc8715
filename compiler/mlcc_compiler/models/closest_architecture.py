"""The supported architecture closest to an unsupported one, for error messages. By the structure of
the layers where known, else by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

BY_LAYERS = {
    "afmoe": "glm4_moe",
    "apertus": "llama",
    "arcee": "llama",
    "axk1": "deepseek_v3",
    "bamba": "granitemoehybrid",
    "bitnet": "llama",
    "camembert": "roberta",
    "cohere2_moe": "cohere2",
    "cwm": "llama",
    "dbrx": "mixtral",
    "deepseek_v32": "deepseek_v3",
    "deepseek_v4": "deepseek_v3",
    "diffllama": "llama",
    "doge": "llama",
    "dots1": "glm4_moe",
    "electra": "bert",
    "ernie": "bert",
    "ernie4_5_vl_moe": "ernie4_5_moe",
    "exaone_moe": "glm4_moe",
    "falcon_mamba": "mamba2",
    "flex_olmo": "olmoe",
    "gemma4_unified": "gemma4",
    "glm4v_moe": "glm4_moe",
    "glm_moe_dsa": "glm4_moe_lite",
    "helium": "llama",
    "hunyuan_v1_moe": "mixtral",
    "hyperclovax": "granite",
    "internlm3": "llama",
    "jais2": "nemotron",
    "jamba": "granitemoehybrid",
    "jetmoe": "mixtral",
    "kimi_k25": "kimi_k2",
    "lara_mini": "qwen3_5",
    "lfm3": "lfm2",
    "llama4": "llama4_text",
    "longcat_flash": "deepseek_v3",
    "mamba": "mamba2",
    "mimo_v2_flash": "glm4_moe",
    "minicpm3": "deepseek_v2",
    "minimax": "minimax_m2",
    "minimax_m3_vl": "minimax_m2",
    "mistral3": "ministral3",
    "nanochat": "llama",
    "olmo": "olmo2",
    "olmo_hybrid": "qwen3_next",
    "phi4_multimodal": "phi3",
    "phimoe": "mixtral",
    "qwen4_exp": "qwen3_5",
    "sarvam_mla": "deepseek_v3",
    "seed_oss": "llama",
    "solar_open": "glm4_moe",
    "vaultgemma": "gemma2",
    "youtu": "deepseek_v3",
    "zamba2": "granitemoehybrid",
}


def closest_architecture(kind: str, built: Iterable[str]) -> str | None:
    """The supported `model_type` closest to `kind`; None if there is none."""
    there = set(built)
    if (known := BY_LAYERS.get(kind.removesuffix("_text"))) in there:
        return known
    found = get_close_matches(kind, sorted(there), n=1, cutoff=0.75)
    return found[0] if found else None
